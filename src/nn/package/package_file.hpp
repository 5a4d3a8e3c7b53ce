// SPDX-License-Identifier: Apache-2.0
// Package files: archives of AOTInductor (.pt2) with the shared object of a model and texts that say what it is for.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace caffe2::serialize {
class PyTorchStreamReader;
}

namespace accel::nn {

class PackageFile {
 public:
  // `model` is one of the archive's; empty: its only one. Reads the texts and nothing else. kNotFound, kCorrupt;
  // kUnsupported for a package that holds sources instead of a shared object.
  PackageFile(const std::string& path, const std::string& model);
  ~PackageFile();

  const std::string& path() const { return path_; }
  // Texts by names: those of AOTInductor, such as AOTI_DEVICE_KEY, and those of whoever made the package.
  const std::map<std::string, std::string>& texts() const { return texts_; }
  // An empty text where there is none.
  std::string text_of(const std::string& name) const;

  // Writes the files of the model into a folder that is there. Returns the path of the shared object.
  std::string extract(const std::string& folder);

 private:
  [[noreturn]] void fail_as_corrupt(const std::string& reason) const;
  std::string find_folder(const std::string& model);
  void read_texts();
  void extract_file(const std::string& record, const std::string& path);

  std::string path_;
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  std::string folder_;         // in the archive, with a slash at its end
  std::string shared_object_;  // in the folder
  std::map<std::string, std::string> texts_;
};

}  // namespace accel::nn
