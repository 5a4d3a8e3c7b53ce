// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "cpp_test.hpp"

namespace callback_test {

using accel::Error;
using accel::Module;
using accel::Op;
using accel::Optimizer;
using accel::Scheduler;
using accel::State;
using accel::Tensor;
using accel::Value;

// An exception that only the program knows.
struct Unknown {
  int number;
};

class CppCallback : public CppTest {
 protected:
  static Module module_with(accel::ForwardFn forward) {
    Module module = Module::create("Doubling");
    module.set_forward(std::move(forward));
    return module;
  }
};

TEST_F(CppCallback, ForwardAndHooks) {
  const Op add = Op::find("aten::add", "Tensor");
  Module module = module_with([add](const Module& self, const std::vector<Value>& inputs) {
    EXPECT_EQ(std::string(self.kind()), "Doubling");
    return add.call({inputs.at(0), inputs.at(0)}).at(0);
  });
  EXPECT_EQ(module.call({vector_of({3})}).to_json(), "[6.0]");
  module.add_hook(ACCEL_HOOK_FORWARD_PRE, [](const Module&, const Value&) { return Value::list({vector_of({5})}); });
  module.add_hook(ACCEL_HOOK_FORWARD, [](const Module&, const Value&) { return Value(); });
  EXPECT_EQ(module.call({vector_of({3})}).to_json(), "[10.0]");
}

TEST_F(CppCallback, EveryTensorOfATree) {
  const Value tree = Value::list({vector_of({1}), Value::map({{"a", vector_of({2})}})});
  int seen = 0;
  const Value same = accel::recursively_apply(tree, false, [&](const Tensor& tensor) {
    seen++;
    return tensor;
  });
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(same, tree);
}

TEST_F(CppCallback, ExceptionsComeOutAsTheyWere) {
  Module unknown = module_with([](const Module&, const std::vector<Value>&) -> Value { throw Unknown{7}; });
  try {
    unknown.call({});
    FAIL() << "nothing was thrown";
  } catch (const Unknown& exception) {
    EXPECT_EQ(exception.number, 7);
  }
  EXPECT_THROW(accel::recursively_apply(vector_of({1}), false,
                                        [](const Tensor&) -> Tensor { throw std::out_of_range("far away"); }),
               std::out_of_range);
  // A later error is its own.
  EXPECT_EQ(error_of([] { Module::linear(0, 0, true); }).function(), "accel_module_linear");
}

TEST_F(CppCallback, CSeesStatusAndMessage) {
  const Module module = module_with(
      [](const Module&, const std::vector<Value>&) -> Value { throw Error(ACCEL_ERROR_NOT_FOUND, "no such layer"); });
  Value out;
  EXPECT_EQ(accel_module_call(module.get(), nullptr, 0, out.put()), ACCEL_ERROR_NOT_FOUND);
  EXPECT_NE(std::string(accel_last_error()).find("no such layer"), std::string::npos);
}

TEST_F(CppCallback, ExceptionsPassThroughTwoLevels) {
  Module inner = module_with([](const Module&, const std::vector<Value>&) -> Value { throw Unknown{1}; });
  Module outer = module_with([inner](const Module&, const std::vector<Value>&) mutable { return inner.call({}); });
  EXPECT_THROW(outer.call({}), Unknown);
  Module catching = module_with([inner](const Module&, const std::vector<Value>&) mutable -> Value {
    try {
      inner.call({});
    } catch (const Unknown&) {
      return 42;
    }
    return 0;
  });
  EXPECT_EQ(catching.call({}).integer(), 42);
}

TEST_F(CppCallback, LearningRates) {
  Optimizer sgd = Optimizer::sgd(Module::linear(1, 1, false));
  Scheduler scheduler = Scheduler::lambda(sgd, [](std::int64_t step) { return step < 2 ? 0.5 : throw Unknown{2}; });
  scheduler.step();
  EXPECT_EQ(scheduler.last_lr(0), 0.5 * 1e-3);
  EXPECT_THROW(scheduler.step(), Unknown);
}

TEST_F(CppCallback, AStepByAClosure) {
  Module model = Module::linear(1, 1, false);
  Optimizer sgd = Optimizer::sgd(model);
  double weight = 0;
  const auto loss = sgd.step_closure([&] {
    Tensor loss = model.tensor("weight").clone();
    weight = loss.item();
    loss.backward();
    return loss;
  });
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->item(), weight);
  EXPECT_NEAR(model.tensor("weight").item(), weight - 1e-3, 1e-6);
  EXPECT_THROW(sgd.step_closure([]() -> Tensor { throw Unknown{3}; }), Unknown);
}

TEST_F(CppCallback, ObjectsOfTheProgramInACheckpoint) {
  State state = State::create();
  const std::string folder = testing::TempDir() + "accel_cpp_callback_checkpoint";
  int steps = 3;
  state.register_for_checkpointing(
      "counter", [&] { return Value(steps); }, [&](const Value& saved) { steps = static_cast<int>(saved.integer()); });
  state.save_state(folder.c_str());
  steps = 9;
  state.load_state(folder.c_str());
  EXPECT_EQ(steps, 3);
  // A generator of the program, and a hook, which throws once.
  int drawn = 1;
  state.register_random_state(
      "program", [&] { return Value(drawn); }, [&](const Value& saved) { drawn = static_cast<int>(saved.integer()); });
  bool fails = true;
  const std::int64_t hook =
      state.register_save_state_pre_hook([&](const Value& models, const std::string& place) -> Value {
        EXPECT_EQ(models.size(), 0);
        if (fails) throw Unknown{4};
        std::ofstream(place + "/extra") << "text";
        return {};
      });
  EXPECT_THROW(state.save_state(folder.c_str()), Unknown);
  fails = false;
  state.save_state(folder.c_str());
  EXPECT_TRUE(std::filesystem::exists(folder + "/extra"));
  state.remove_checkpoint_hook(hook);
  drawn = 2;
  state.load_state(folder.c_str());
  EXPECT_EQ(drawn, 1);
  std::filesystem::remove_all(folder);
}

TEST_F(CppCallback, LogCallbackEndsWhenItIsReplaced) {
  const auto kept = std::make_shared<int>(0);
  accel::set_log_callback([kept](std::int32_t, const char*) {});
  EXPECT_EQ(kept.use_count(), 2);
  accel::set_log_callback({});
  EXPECT_EQ(kept.use_count(), 1);
}

// Regression: a process that ended just after it had begun to profile was aborted by Kineto's thread.
TEST_F(CppCallback, TrackersLoggersBarsAndProfiles) {
  State state = State::create();
  std::vector<std::string> heard;
  {
    accel::Tracker tracker =
        accel::Tracker::create("own", {}, [&](accel_tracker_event_t event, const Value& content, std::int64_t step) {
          if (event == ACCEL_TRACKER_VALUES)
            heard.push_back(content.at("values").to_json() + " at " + std::to_string(step));
          if (event == ACCEL_TRACKER_FLUSH) throw Unknown{7};
        });
    accel::TrackingOptions stops;
    stops.on_failure = ACCEL_TRACKER_FAILURE_STOP;
    state.add_tracker(tracker);
    state.init_trackers("project", {}, {}, stops);
    state.log(Value::map({{"loss", 1.5}}), 3);
    EXPECT_THROW(state.flush_trackers(), Unknown);
    state.finish_trackers();

    accel::Logger logger = accel::Logger::create(state, "test", ACCEL_LOG_INFO,
                                                 [&](std::int32_t level, const char* name, const char* message) {
                                                   heard.push_back(std::to_string(level) + " " + name + " " + message);
                                                 });
    logger.log(ACCEL_LOG_WARNING, "careful", ACCEL_LOG_MAIN_PROCESS);

    std::string last;
    accel::ProgressBar bar = state.progress_begin("loop", 2, {}, [&](const char* line, bool is_last) {
      if (is_last) last = line;
    });
    accel::progress_update(bar, 2);
    accel::progress_end(bar);
    EXPECT_NE(last.find("2/2"), std::string::npos) << last;

    int cycles = 0;
    accel::Profile profile = accel::Profile::begin(state, {}, [&](accel::Profile& recorded) {
      cycles++;
      EXPECT_GT(recorded.key_averages(false).size(), 0U);
    });
    EXPECT_EQ(json_of(vector_of({1})), "[1.0]");
    profile.end();
    EXPECT_EQ(cycles, 1);
  }
  EXPECT_EQ(heard, (std::vector<std::string>{R"({"loss":1.5} at 3)", "30 test careful"}));
}

}  // namespace callback_test
