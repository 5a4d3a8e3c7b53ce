// SPDX-License-Identifier: Apache-2.0
#include "http/http_client.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/error.hpp"

namespace accel::track {
namespace {

// The numbers of curl/curl.h, which are part of libcurl's ABI. The header itself is not needed to build.
enum CurlOption {
  kWriteData = 10001,
  kUrl = 10002,
  kErrorBuffer = 10010,
  kPostFields = 10015,
  kUserAgent = 10018,
  kHttpHeader = 10023,
  kCustomRequest = 10036,
  kNoSignal = 99,
  kTimeoutMs = 155,
  kConnectTimeoutMs = 156,
  kUserName = 10173,
  kPassword = 10174,
  kWriteFunction = 20011,
  kPostFieldSizeLarge = 30120,
};
constexpr int kResponseCode = 0x200002;
constexpr long kGlobalAll = 3;
constexpr size_t kErrorSize = 256;
constexpr long kConnectTimeout = 5000;               // ms
constexpr size_t kLongestAnswer = size_t{64} << 20;  // of a server that means no harm

size_t keep_body(const char* data, size_t size, size_t count, void* body) {
  auto& text = *static_cast<std::string*>(body);
  if (text.size() + size * count > kLongestAnswer) return 0;
  text.append(data, size * count);
  return size * count;
}

}  // namespace

struct HttpClient::Library {
  long (*global_init)(long);
  void* (*easy_init)();
  void (*easy_cleanup)(void*);
  void (*easy_reset)(void*);
  int (*easy_setopt)(void*, int, ...);
  int (*easy_perform)(void*);
  int (*easy_getinfo)(void*, int, ...);
  const char* (*easy_strerror)(int);
  void* (*slist_append)(void*, const char*);
  void (*slist_free_all)(void*);
};

std::unique_ptr<HttpClient> HttpClient::load(std::string& why) {
  static std::mutex mutex;
  static Library library{};
  static bool is_loaded = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_loaded) {
    void* const opened = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      why = text("libcurl cannot be loaded: ", dlerror());
      return nullptr;
    }
    bool has_all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(opened, name));
      has_all = has_all && function != nullptr;
    };
    find(library.global_init, "curl_global_init");
    find(library.easy_init, "curl_easy_init");
    find(library.easy_cleanup, "curl_easy_cleanup");
    find(library.easy_reset, "curl_easy_reset");
    find(library.easy_setopt, "curl_easy_setopt");
    find(library.easy_perform, "curl_easy_perform");
    find(library.easy_getinfo, "curl_easy_getinfo");
    find(library.easy_strerror, "curl_easy_strerror");
    find(library.slist_append, "curl_slist_append");
    find(library.slist_free_all, "curl_slist_free_all");
    if (!has_all || library.global_init(kGlobalAll) != 0) {
      why = "libcurl.so.4 is not a libcurl that can be used";
      return nullptr;
    }
    is_loaded = true;
  }
  void* const handle = library.easy_init();
  require(handle != nullptr, Status::kOutOfMemory, "libcurl has no memory for a connection");
  return std::unique_ptr<HttpClient>(new HttpClient(library, handle));
}

HttpClient::~HttpClient() { library_.easy_cleanup(handle_); }

void HttpClient::set_credentials(std::string user, std::string password) {
  user_ = std::move(user);
  password_ = std::move(password);
}

HttpResponse HttpClient::request(const char* method, const std::string& url, std::string_view body,
                                 const std::string& content_type, std::chrono::milliseconds timeout) {
  HttpResponse response;
  std::array<char, kErrorSize> problem{};
  void* list = nullptr;
  const auto add = [&](const std::string& header) { list = library_.slist_append(list, header.c_str()); };
  if (!content_type.empty()) add("Content-Type: " + content_type);
  add("Expect:");  // no question before a long body
  for (const std::string& header : headers_) add(header);
  const std::unique_ptr<void, void (*)(void*)> headers(list, library_.slist_free_all);
  library_.easy_reset(handle_);  // the connection stays
  const auto set = [&](CurlOption option, auto value) { library_.easy_setopt(handle_, option, value); };
  set(kUrl, url.c_str());
  set(kCustomRequest, method);
  set(kNoSignal, 1L);
  set(kTimeoutMs, static_cast<long>(timeout.count()));
  set(kConnectTimeoutMs, kConnectTimeout);
  set(kErrorBuffer, problem.data());
  set(kUserAgent, "libaccel");
  set(kHttpHeader, headers.get());
  set(kWriteFunction, &keep_body);
  set(kWriteData, static_cast<void*>(&response.body));
  if (!user_.empty()) {
    set(kUserName, user_.c_str());
    set(kPassword, password_.c_str());
  }
  if (std::string_view(method) != "GET") {
    set(kPostFieldSizeLarge, static_cast<int64_t>(body.size()));
    set(kPostFields, body.data() == nullptr ? "" : body.data());
  }
  const int failed = library_.easy_perform(handle_);
  require(failed == 0, Status::kIo, "no answer from '", url.substr(0, url.find('?')),
          "': ", problem[0] != '\0' ? problem.data() : library_.easy_strerror(failed));
  library_.easy_getinfo(handle_, kResponseCode, &response.status);
  return response;
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result;
  for (const char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    const bool is_plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                          (byte >= 'A' && byte <= 'Z') || byte == '-' || byte == '.' || byte == '_' || byte == '~' ||
                          (keep_slashes && byte == '/');
    if (is_plain) {
      result += byte;
    } else {
      result += '%';
      result += kDigits[code >> 4];
      result += kDigits[code & 15];
    }
  }
  return result;
}

}  // namespace accel::track
