// SPDX-License-Identifier: Apache-2.0
// Requests of the clients of a store, and the answers, without sockets: the protocol of LibTorch's TCPStore, and the
// proofs of store_proof.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>
#include <unordered_map>
#include <vector>

#include "comm/rendezvous/store_proof.hpp"

namespace accel::comm {

// A value is shared by the table and the answers that wait to be sent: thousands of clients may ask for the same one.
using StoreValue = std::shared_ptr<const std::string>;

// Bytes that a client has not taken yet.
class StoreAnswers {
 public:
  bool is_empty() const { return chunks_.empty(); }
  void add(const char* bytes, size_t size);
  void add(const StoreValue& value);

  // The next bytes, and that so many of them were sent.
  const std::string& next() const { return chunks_.front().bytes(); }
  size_t offset() const { return sent_; }
  void take(size_t size);

 private:
  struct Chunk {
    std::string own;
    StoreValue shared;  // instead, if it is there
    const std::string& bytes() const { return shared ? *shared : own; }
  };

  std::deque<Chunk> chunks_;
  size_t sent_ = 0;  // of the first chunk
};

class StoreRequests {
 public:
  class Client {
   public:
    StoreAnswers answers;
    bool belongs() const { return belongs_; }  // to the job
    bool lacks_memory() const { return lacks_memory_; }

   private:
    friend class StoreRequests;

    bool is_known_ = false;  // it has sent the number with which clients of a store begin
    bool belongs_ = false;
    bool lacks_memory_ = false;                // for an answer
    std::optional<StoreChallenge> challenge_;  // that was answered
    std::string input_;
    std::vector<std::string> awaited_;  // keys that were not there when it asked
    size_t missing_ = 0;                // of them
  };

  enum class Outcome : uint8_t {
    kServed,    // as far as its requests are complete
    kNonsense,  // what no client of a store sends: its connection is to be closed
    kStranger,  // a client that does not know the secret, likewise
  };

  // Without a secret all clients belong to the job.
  explicit StoreRequests(std::string secret) : secret_(std::move(secret)) {}

  // Takes bytes that the client has sent. Clients that waited for them stand in answered().
  Outcome receive(Client& client, const char* bytes, size_t size);
  std::vector<Client*>& answered() { return answered_; }
  // The client is gone.
  void forget(Client& client);

 private:
  class Reader;

  void answer(Client& client, Reader& request);
  void answer_challenge(Client& client, Reader& request) const;
  void check_proof(Client& client, const std::string& code) const;
  StoreValue value_of(const std::string& key) const;
  bool is_there(const std::string& key) const { return values_.count(key) != 0; }
  void set(const std::string& key, std::string value);
  void wait(Client& client, std::vector<std::string> keys);
  void stop_waiting(Client& client);

  const std::string secret_;
  std::unordered_map<std::string, StoreValue> values_;
  std::unordered_map<std::string, std::vector<Client*>> waiting_;  // by key
  size_t num_waiting_ = 0;                                         // clients
  std::vector<Client*> answered_;                                  // has room for all that wait
};

}  // namespace accel::comm
