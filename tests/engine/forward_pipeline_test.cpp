// SPDX-License-Identifier: Apache-2.0
// Forwards of pipelines, with ranks as threads: any number of rows, rounds, chunks that end, errors of a stage.
#include "parallel/pipelined_forward.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "rank_threads.hpp"
#include "tensor/tree.hpp"

namespace accel::parallel {
namespace forward_pipeline_test {

using tests::run_ranks;

at::Tensor batch_of(int64_t rows) { return at::arange(rows * 3, at::kDouble).view({rows, 3}); }

c10::IValue member(const c10::IValue& map, const char* key) { return *tree::find_member(map, key); }

TEST(ForwardPipeline, OutputsAreThoseOfTheWholeBatch) {
  for (const int count : {1, 2, 3, 4})
    run_ranks(count, [&](const CommunicatorPtr& ranks) {
      for (const int64_t rows : {1, 3, 4, 7})
        for (const RowCut cut : {RowCut{1}, RowCut{3}, RowCut{8}, RowCut{1, 2}, RowCut{1, 7}, RowCut{1, 9}}) {
          const bool is_last = ranks->rank() + 1 == count;
          std::vector<int64_t> sizes;
          const c10::IValue batch =
              tree::new_map({{"rows", batch_of(rows)}, {"shift", at::ones({1, 3}, at::kDouble)}, {"word", "a"}});
          const c10::IValue output = run_forward_pipeline(
              ranks, c10::kCPU, ranks->rank() == 0 ? batch : c10::IValue(), cut, 1, [&](const c10::IValue& input) {
                const at::Tensor own = member(input, "rows").toTensor(), shift = member(input, "shift").toTensor();
                EXPECT_FALSE(at::GradMode::is_enabled());
                EXPECT_EQ(member(input, "word").toStringRef(), "a");
                sizes.push_back(own.size(0));
                const at::Tensor next = own * 2 + shift;
                return is_last ? c10::IValue(tree::new_list({next, next.sum(1), 5}))
                               : c10::IValue(tree::new_map({{"rows", next}, {"shift", shift}, {"word", "a"}}));
              });
          for (const int64_t size : sizes) {
            EXPECT_LE(sizes.front() - size, 1);
            EXPECT_TRUE(cut.chunk_rows == 0 || size == cut.chunk_rows);
          }
          EXPECT_EQ(output.isNone(), !is_last);
          if (!is_last) continue;
          at::Tensor expected = batch_of(rows);
          for (int stage = 0; stage < count; stage++) expected = expected * 2 + 1;
          const auto items = tree::sequence_items(output);
          EXPECT_TRUE(at::equal(items[0].toTensor(), expected));
          EXPECT_TRUE(at::equal(items[1].toTensor(), expected.sum(1)));
          EXPECT_EQ(items[2].toInt(), 5);
        }
    });
}

TEST(ForwardPipeline, WhatTheLastStageReturnsIsTheNextRoundsInput) {
  for (const int count : {1, 2, 3})
    run_ranks(count, [&](const CommunicatorPtr& ranks) {
      int calls = 0;
      const c10::IValue output =
          run_forward_pipeline(ranks, c10::kCPU, batch_of(5), {2}, 50, [&](const c10::IValue& input) -> c10::IValue {
            calls++;
            return input.toTensor() + 1;
          });
      EXPECT_EQ(calls, 100);
      if (ranks->rank() + 1 == count) {
        EXPECT_TRUE(at::equal(output.toTensor(), batch_of(5) + 50 * count));
      }
    });
}

TEST(ForwardPipeline, NoStageIsCalledForAChunkAtItsEnd) {
  run_ranks(3, [&](const CommunicatorPtr& ranks) {
    int calls = 0;
    const c10::IValue output = run_forward_pipeline(
        ranks, c10::kCPU, at::arange(2, at::kLong), {2}, 10, [&](const c10::IValue& input) -> c10::IValue {
          calls++;
          const at::Tensor next = input.toTensor() + (ranks->rank() == 2 ? 2 : 0);
          return next.item<int64_t>() == 7 ? c10::IValue()
                                           : c10::IValue(next);  // of the second chunk in the third round
        });
    EXPECT_EQ(calls, 10 + 3);
    EXPECT_TRUE(output.isNone());
  });
}

// What a rank says when the stage of one rank fails in a chunk.
TEST(ForwardPipeline, AnErrorOfOneStageIsTheErrorOfAll) {
  for (const int failing : {0, 1, 2})
    run_ranks(3, [&](const CommunicatorPtr& ranks) {
      const auto run = [&](bool fails, int64_t rounds) {
        int calls = 0;
        try {
          run_forward_pipeline(ranks, c10::kCPU, batch_of(4), {4}, rounds, [&](const c10::IValue& input) {
            if (fails && calls++ == 2 && ranks->rank() == failing)
              throw Error(Status::kShapeMismatch, "the rows are odd");
            return input;
          });
          return std::string();
        } catch (const std::exception& error) {
          return std::string(error.what());
        }
      };
      for (const int64_t rounds : {1, 3}) {
        const std::string said = run(true, rounds);
        EXPECT_NE(said.find("the rows are odd"), std::string::npos) << said;
        if (ranks->rank() != failing) {
          const std::string begin =
              "rank " + std::to_string(failing) + " of the pipeline failed in the forward of chunk 2: ";
          EXPECT_EQ(said.find(begin), 0) << said;
        }
        EXPECT_EQ(run(false, rounds), "");
      }
    });
}

TEST(ForwardPipeline, WrongBatchesAndOutputsAreErrorsOfAll) {
  run_ranks(2, [&](const CommunicatorPtr& ranks) {
    const auto said = [&](const c10::IValue& batch, RowCut cut, const ForwardStage& stage) {
      try {
        run_forward_pipeline(ranks, c10::kCPU, batch, cut, 1, stage);
        return std::string("nothing");
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
    };
    const ForwardStage same = [](const c10::IValue& input) { return input; };
    EXPECT_NE(said("a text", {2}, same).find("Could not find batch size"), std::string::npos);
    EXPECT_NE(said(batch_of(0), {2}, same).find("the batch has no rows"), std::string::npos);
    EXPECT_NE(said(batch_of(2), {0}, same).find("chunks is 0"), std::string::npos);
    const ForwardStage sum = [](const c10::IValue& input) { return c10::IValue(input.toTensor().sum()); };
    const std::string misfit =
        said(batch_of(2), {2}, [&](const c10::IValue& input) { return ranks->rank() == 1 ? sum(input) : input; });
    EXPECT_NE(misfit.find("expected its rows in dimension 0"), std::string::npos) << misfit;
    EXPECT_EQ(said(batch_of(2), {1}, [&](const c10::IValue& input) { return ranks->rank() == 1 ? sum(input) : input; }),
              "nothing");
  });
}

TEST(ForwardPipeline, NothingHangsWithLargeValuesAndLateRanks) {
  constexpr int64_t kLarge = 4 << 20;  // rows of 8 bytes
  run_ranks(3, [&](const CommunicatorPtr& ranks) {
    const c10::IValue output =
        run_forward_pipeline(ranks, c10::kCPU, at::ones({kLarge}, at::kDouble), {2}, 2, [&](const c10::IValue& input) {
          if (ranks->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          return c10::IValue(input.toTensor() * 2);
        });
    if (ranks->rank() == 2) {
      EXPECT_EQ(output.toTensor().sum().item<double>(), 64.0 * kLarge);
    }
  });
}

}  // namespace forward_pipeline_test
}  // namespace accel::parallel
