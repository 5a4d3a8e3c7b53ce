// SPDX-License-Identifier: Apache-2.0
// Values on their way to other ranks.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "comm/collectives.hpp"
#include "comm/object_message.hpp"
#include "rank_threads.hpp"
#include "tensor/bytes.hpp"
#include "tensor/dtype_value.hpp"
#include "tensor/tree.hpp"

namespace accel::comm {
namespace object_test {

using tests::run_ranks;

c10::IValue everything() {
  auto map = tree::new_map();
  auto list = tree::new_list();
  list.push_back(c10::IValue());
  list.push_back(true);
  list.push_back(std::numeric_limits<int64_t>::min());
  list.push_back(std::string("text with \0 in it", 17));
  list.push_back(tree::new_list());
  list.push_back(at::arange(6, at::kShort).view({2, 3}).t());
  list.push_back(at::empty({3, 0}, at::kBFloat16));
  list.push_back(at::full({}, 2.5, at::kDouble));
  list.push_back(tree::new_tuple({1, tree::new_tuple({})}));
  list.push_back(tree::new_map({{7, std::string("seven")}, {std::string("7"), c10::IValue()}}));
  list.push_back(tree::bytes_value(std::string("\0\xff", 2), "a/b"));
  list.push_back(tree::dtype_value(at::kBFloat16));
  map.insert("list", list);
  map.insert("", -0.5);
  map.insert("map", tree::new_map());
  return map;
}

TEST(ObjectMessage, SaysEveryKindOfValue) {
  EXPECT_TRUE(tree::equal(decode_object(encode_object(everything())), everything()));
  EXPECT_TRUE(std::isnan(decode_object(encode_object(NAN)).toDouble()));
  EXPECT_EQ(decode_object(encode_object(at::Device(at::kCPU))).toStringRef(), "cpu");
}

TEST(ObjectMessage, RefusesWhatItCannotSay) {
  EXPECT_THROW(encode_object(at::eye(2).to_sparse()), Error);
  c10::IValue deep = 1;
  for (int level = 0; level <= tree::kDeepest; level++) {
    auto list = tree::new_list();
    list.push_back(deep);
    deep = list;
  }
  EXPECT_THROW(encode_object(deep), Error);
}

TEST(ObjectMessage, WhatIsCutOrChangedIsAnErrorOrAValue) {
  const std::string message = encode_object(everything());
  for (size_t size = 0; size < message.size(); size++)
    EXPECT_THROW(decode_object(message.substr(0, size)), Error) << size;
  EXPECT_THROW(decode_object(message + '\0'), Error);
  for (size_t place = 0; place < message.size(); place++)
    for (const int change : {1, 0x80, 0xff}) {
      std::string changed = message;
      changed[place] = static_cast<char>(changed[place] ^ change);
      try {
        decode_object(changed);
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kCorrupt) << error.message();
      }
    }
  std::string nested(100000, '\x07');  // lists in lists, as far as it goes
  EXPECT_THROW(decode_object(nested), Error);
}

TEST(ObjectCollectives, TakeOneMessageWhereObjectsAreShort) {
  run_ranks(3, [](const std::shared_ptr<comm::Communicator>& communicator) {
    const int rank = communicator->rank();
    const auto sequence = [&] { return communicator->flight_record()->latest_done(~uint64_t{0})->sequence; };
    communicator->barrier();
    for (const size_t length : {10UL, 470UL, 5000UL}) {
      const uint64_t before = sequence();
      auto own = tree::new_list();
      own.push_back(std::string(rank == 1 ? length : 1, 'x'));
      own.push_back(at::full({2}, rank, at::kByte));  // bytes
      const auto all = gather_object(*communicator, own).toListRef().vec();
      EXPECT_EQ(sequence() - before, length > 400 ? 2U : 1U);
      ASSERT_EQ(all.size(), 6U);
      EXPECT_EQ(all[2].toStringRef().size(), length);
      EXPECT_TRUE(at::equal(all[5].toTensor(), at::full({2}, 2, at::kByte)));

      auto list = tree::new_list();
      list.push_back(rank == 1 ? c10::IValue(std::string(length, 'y')) : c10::IValue());
      const uint64_t middle = sequence();
      const auto given = broadcast_object_list(*communicator, list, 1).toListRef().vec();
      EXPECT_EQ(sequence() - middle, length > 490 ? 2U : 1U);
      EXPECT_EQ(given[0].toStringRef(), std::string(length, 'y'));
    }
    auto list = tree::new_list();
    if (rank == 2) list.push_back(1);
    EXPECT_THROW(broadcast_object_list(*communicator, list, 0), Error);
  });
}

}  // namespace object_test
}  // namespace accel::comm
