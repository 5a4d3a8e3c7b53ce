// SPDX-License-Identifier: Apache-2.0
//! Optimizers, schedules, random numbers, settings: each function of theirs once, with what it should give.
mod ranks;

use accel::*;
use std::sync::{Arc, Mutex};

type MakeOptimizer = fn(&Model) -> Result<Optimizer>;
type MakeScheduler = fn(&Optimizer) -> Result<Scheduler>;

fn cpu() -> State {
    StateOptions::new().cpu(true).build().unwrap()
}

fn ones(shape: &[i64]) -> Tensor {
    Tensor::full(shape, 1.0, DType::Float32, Device::Cpu).unwrap()
}

#[test]
fn every_optimizer_makes_a_loss_smaller() {
    let optimizers: [(&str, MakeOptimizer); 15] = [
        ("schedule_free_sgd", |model| {
            Optimizer::schedule_free_sgd(model, ScheduleFreeSgdOptions::new().lr(0.01).momentum(0.8).warmup_steps(0.0))
        }),
        ("schedule_free_adamw", |model| {
            Optimizer::schedule_free_adamw(model, ScheduleFreeAdamwOptions::new().lr(0.01).beta1(0.8))
        }),
        ("adamw", |model| Optimizer::adamw(model, AdamOptions::new().lr(0.01).beta1(0.9).amsgrad(true))),
        ("adam", |model| Optimizer::adam(model, AdamOptions::new().lr(0.01).eps(1e-8))),
        ("adamw_8bit", |model| Optimizer::adamw_8bit(model, AdamOptions::new().lr(0.01))),
        ("sgd", |model| Optimizer::sgd(model, SgdOptions::new().lr(0.01).momentum(0.5).nesterov(true))),
        ("adagrad", |model| Optimizer::adagrad(model, AdagradOptions::new().lr(0.01).lr_decay(0.01))),
        ("rmsprop", |model| Optimizer::rmsprop(model, RmspropOptions::new().lr(0.01).centered(true))),
        ("adamax", |model| Optimizer::adamax(model, AdamaxOptions::new().lr(0.01))),
        ("nadam", |model| Optimizer::nadam(model, NadamOptions::new().lr(0.01).decoupled_weight_decay(true))),
        ("radam", |model| Optimizer::radam(model, RadamOptions::new().lr(0.01))),
        ("lion", |model| Optimizer::lion(model, LionOptions::new().lr(0.01))),
        ("lamb", |model| Optimizer::lamb(model, LambOptions::new().lr(0.01))),
        ("adafactor", |model| Optimizer::adafactor(model, AdafactorOptions::new().lr(0.01).d(1.0))),
        ("muon", |model| {
            Optimizer::muon(model, MuonOptions::new().lr(0.01).ns_steps(5).adjust_lr_fn(MuonAdjust::MatchRmsAdamw))
        }),
    ];
    for (name, make) in optimizers {
        let model = nn::linear(4, 4, Bias::Without).unwrap();
        model.tensor("weight").unwrap().detach().unwrap().fill_(0.5).unwrap();
        let optimizer = make(&model).unwrap();
        let mut losses = Vec::new();
        for _ in 0..5 {
            let mut loss = model.forward(&ones(&[2, 4])).unwrap().square().unwrap().mean().unwrap();
            losses.push(loss.item().unwrap());
            loss.backward().unwrap();
            assert_eq!(optimizer.step().unwrap(), Step::Updated);
            optimizer.zero_grad().unwrap();
        }
        assert!(losses[4] < losses[0], "{name}: {losses:?}");
        let state = optimizer.state_dict().unwrap();
        optimizer.load_state_dict(&state).unwrap();
        assert!(state.get("param_groups").is_some(), "{name}");
    }
}

#[test]
fn lomo_updates_in_its_backward() {
    let state = cpu();
    let model = nn::linear(2, 1, Bias::Without).unwrap();
    let optimizer = Optimizer::lomo(&model, LomoOptions::new().lr(0.1)).unwrap();
    let _prepared = state.prepare_optimizer(&optimizer).unwrap();
    let before = model.tensor("weight").unwrap().to_vec::<f32>().unwrap();
    let mut loss = model.forward(&ones(&[1, 2])).unwrap().sum().unwrap();
    state.lomo_backward(&mut loss, Some(0.5)).unwrap();
    let after = model.tensor("weight").unwrap().to_vec::<f32>().unwrap();
    assert!((before[0] - after[0] - 0.5).abs() < 1e-6);
}

#[test]
fn adalomo_updates_in_its_backward() {
    let state = cpu();
    let model = nn::linear(2, 1, Bias::Without).unwrap();
    let optimizer = Optimizer::adalomo(&model, AdalomoOptions::new().lr(0.1)).unwrap();
    let _prepared = state.prepare_optimizer(&optimizer).unwrap();
    let before = model.tensor("weight").unwrap().to_vec::<f32>().unwrap();
    let mut loss = model.forward(&ones(&[1, 2])).unwrap().sum().unwrap();
    state.lomo_backward(&mut loss, None).unwrap();
    assert!(model.tensor("weight").unwrap().to_vec::<f32>().unwrap()[0] < before[0]);
}

#[test]
fn closures_make_the_gradients_of_a_step() {
    let model = nn::linear(2, 1, Bias::Without).unwrap();
    let optimizer = Optimizer::sgd(&model, SgdOptions::new().lr(0.5)).unwrap();
    let before = model.tensor("weight").unwrap().to_vec::<f32>().unwrap();
    let shared = model.child("").unwrap();
    let loss = optimizer
        .step_closure(move || {
            let mut loss = shared.forward(&ones(&[1, 2]))?.sum()?;
            loss.backward()?;
            Ok(loss)
        })
        .unwrap()
        .unwrap();
    assert!((loss.item().unwrap() as f32 - before[0] - before[1]).abs() < 1e-5);
    let after = model.tensor("weight").unwrap().to_vec::<f32>().unwrap();
    assert!((before[0] - after[0] - 0.5).abs() < 1e-6);
    let error = optimizer.step_closure(|| Err("no loss".into())).unwrap_err();
    assert!(error.to_string().contains("no loss"), "{error}");
}

#[test]
fn schedule_free_parameters_are_switched() {
    let model = nn::linear(1, 1, Bias::Without).unwrap();
    let options = ScheduleFreeSgdOptions::new().lr(0.5).momentum(0.5);
    let optimizer = Optimizer::schedule_free_sgd(&model, options).unwrap();
    for _ in 0..2 {
        model.forward(&ones(&[1, 1])).unwrap().sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
        optimizer.zero_grad().unwrap();
    }
    let weight = || model.tensor("weight").unwrap().to_vec::<f32>().unwrap()[0];
    let trained = weight();
    optimizer.train(false).unwrap();
    assert!((weight() - trained - 0.125).abs() < 1e-6);
    optimizer.train(true).unwrap();
    assert!((weight() - trained).abs() < 1e-6);
}

#[test]
fn backward_has_options() {
    let state = cpu();
    let model = nn::linear(2, 1, Bias::With).unwrap();
    let how = PrepareModelOptions::new().evaluation_mode(true).device_placement(true);
    let prepared = state.prepare_model(&model, how).unwrap();
    let (weight, bias) = (model.tensor("weight").unwrap(), model.tensor("bias").unwrap());
    let y = prepared.forward(&ones(&[1, 2])).unwrap();
    let mut loss = y.mul(&y).unwrap().sum().unwrap();
    let only_bias = BackwardOptions::new().create_graph(true).inputs(model.tensor("bias").unwrap());
    state.backward_with(&mut loss, only_bias).unwrap();
    assert!(weight.grad().unwrap().is_none());
    let mut slope = bias.grad().unwrap().unwrap();
    let optimizer = Optimizer::sgd(&model, SgdOptions::new()).unwrap();
    optimizer.zero_grad().unwrap();
    let from = || BackwardOptions::new().gradient(ones(&[1]));
    slope.backward_with(from().retain_graph(true)).unwrap();
    assert_eq!(weight.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [2.0, 2.0]);
    optimizer.zero_grad().unwrap();
    state.backward_sum_with(&mut slope, 2, from()).unwrap();
    assert_eq!(weight.grad().unwrap().unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
}

#[test]
fn hooks_are_removed() {
    let model = nn::linear(1, 1, Bias::Without).unwrap();
    let calls = Arc::new(Mutex::new(0));
    let counted = calls.clone();
    let id = model
        .add_hook(When::AfterForward, move |_, _| {
            *counted.lock().unwrap() += 1;
            Ok(None)
        })
        .unwrap();
    model.forward(&ones(&[1, 1])).unwrap();
    model.remove_hook(id).unwrap();
    model.forward(&ones(&[1, 1])).unwrap();
    assert_eq!(*calls.lock().unwrap(), 1);
    assert_eq!(model.remove_hook(id).unwrap_err().code(), ErrorCode::NotFound);
    model.set_no_grad(true).unwrap();
    assert!(!model.forward(&ones(&[1, 1])).unwrap().requires_grad().unwrap());
}

#[test]
fn children_come_before_their_parents() {
    let model = nn::sequential(&[&nn::linear(1, 1, Bias::Without).unwrap(), &nn::linear(1, 1, Bias::Without).unwrap()])
        .unwrap();
    let paths: Vec<_> = model.children_bottom_up().unwrap().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["0", "1", ""]);
    assert_eq!(dtype_byte_size("bool").unwrap(), 0.125);
}

#[test]
fn files_have_metadata_and_ties() {
    let state = cpu();
    let path = std::env::temp_dir().join(format!("accel-ties-{}.safetensors", std::process::id()));
    let weight = Value::from(ones(&[2]));
    let tensors = Value::map([("a", weight.try_clone().unwrap()), ("b", weight)]).unwrap();
    let metadata = Value::map([("format", Value::string("pt").unwrap())]).unwrap();
    state.save(&tensors, Some(&metadata), &path, None).unwrap();
    let texts = load_metadata(&path).unwrap();
    assert_eq!(texts.get("b").and_then(|text| text.as_str()), Some("a"));
    assert!(load(&path, None).unwrap().get("b").is_some());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn groups_have_settings() {
    let optimizer = Optimizer::sgd(None, SgdOptions::new().lr(0.5).momentum(0.9)).unwrap();
    let mut parameter = ones(&[2]);
    parameter.set_requires_grad(true).unwrap();
    optimizer.add_group(&[&parameter], Some(0.25), None).unwrap();
    assert_eq!((optimizer.num_groups(), optimizer.lr(0).unwrap()), (1, 0.25));
    optimizer.set_lr(0, 0.75).unwrap();
    optimizer.set_setting(0, "momentum", 0.1).unwrap();
    assert_eq!(optimizer.setting(0, "momentum").unwrap(), Some(0.1));
    optimizer.set_update_precision(0, UpdatePrecision::MasterWeights).unwrap();
    assert_eq!(optimizer.state_bytes(), 0);
    let error = optimizer.setting(0, "wings").unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(error.message().contains("momentum"), "{error:?}");
    assert_eq!(optimizer.lr(3).unwrap_err().code(), ErrorCode::NotFound);
    let error = Optimizer::sgd(None, SgdOptions::new().lr(-1.0)).err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
}

#[test]
fn every_schedule_gives_its_rates() {
    let schedules: [(&str, MakeScheduler, [f64; 3]); 16] = [
        ("step", |optimizer| Scheduler::step_lr(optimizer, 2, 0.5), [1.0, 1.0, 0.5]),
        ("cosine", |optimizer| Scheduler::cosine(optimizer, 0, 2, 0.0), [1.0, 0.5, 0.0]),
        ("linear_warmup", |optimizer| Scheduler::linear_warmup(optimizer, 2, 4), [0.0, 0.5, 1.0]),
        ("hard_restarts", |optimizer| Scheduler::cosine_hard_restarts(optimizer, 0, 4, 2), [1.0, 0.5, 1.0]),
        ("constant_with_warmup", |optimizer| Scheduler::constant_with_warmup(optimizer, 2), [0.0, 0.5, 1.0]),
        ("inverse_sqrt", |optimizer| Scheduler::inverse_sqrt(optimizer, 1, Some(1)), [0.0, 1.0, 0.5f64.sqrt()]),
        ("multi_step", |optimizer| Scheduler::multi_step(optimizer, &[1, 2], 0.1), [1.0, 0.1, 0.01]),
        ("constant", |optimizer| Scheduler::constant(optimizer, 0.5, 2), [0.5, 0.5, 1.0]),
        ("linear", |optimizer| Scheduler::linear(optimizer, 0.5, 1.0, 2), [0.5, 0.75, 1.0]),
        ("exponential", |optimizer| Scheduler::exponential(optimizer, 0.5), [1.0, 0.5, 0.25]),
        ("polynomial", |optimizer| Scheduler::polynomial(optimizer, 2, 1.0), [1.0, 0.5, 0.0]),
        ("cosine_annealing", |optimizer| Scheduler::cosine_annealing(optimizer, 2, 0.0), [1.0, 0.5, 0.0]),
        ("warm_restarts", |optimizer| Scheduler::cosine_warm_restarts(optimizer, 2, 1, 0.0), [1.0, 0.5, 1.0]),
        (
            "cyclic",
            |optimizer| {
                let options = CyclicOptions::new().step_size_up(2).cycle_momentum(false).mode(CycleMode::Triangular);
                Scheduler::cyclic(optimizer, 0.0, 1.0, options)
            },
            [0.0, 0.5, 1.0],
        ),
        (
            "one_cycle",
            |optimizer| {
                let options = OneCycleOptions::new().pct_start(0.5).div_factor(4.0).cycle_momentum(false);
                Scheduler::one_cycle(optimizer, 1.0, 5, options.anneal_strategy(AnnealStrategy::Linear))
            },
            [0.25, 0.75, 1.0 - (1.0 - 0.25e-4) / 5.0],
        ),
        (
            "sequential",
            |optimizer| {
                let parts = vec![Scheduler::constant(optimizer, 0.5, 9)?, Scheduler::exponential(optimizer, 0.5)?];
                Scheduler::sequential(parts, &[1])
            },
            [0.5, 1.0, 0.5],
        ),
    ];
    for (name, make, expected) in schedules {
        let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With).unwrap(), SgdOptions::new().lr(1.0)).unwrap();
        let scheduler = make(&optimizer).unwrap();
        let curve = scheduler.curve(3).unwrap().to_vec::<f64>().unwrap();
        let mut rates = vec![scheduler.last_lr(0).unwrap()];
        for _ in 1..3 {
            scheduler.step().unwrap();
            rates.push(scheduler.last_lr(0).unwrap());
        }
        assert_eq!(curve, rates, "{name}");
        let close = rates.iter().zip(&expected).all(|(rate, right)| (rate - right).abs() < 0.02);
        assert!(close, "{name}: {rates:?}, expected {expected:?}");
        let position = scheduler.state_dict().unwrap();
        scheduler.load_state_dict(&position).unwrap();
    }
    let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With).unwrap(), SgdOptions::new().lr(1.0)).unwrap();
    let plateau =
        PlateauOptions::new().patience(0).factor(0.5).mode(MetricMode::Min).threshold_mode(ThresholdMode::Abs);
    let scheduler = Scheduler::plateau(&optimizer, plateau).unwrap();
    assert_eq!(scheduler.step().unwrap_err().code(), ErrorCode::InvalidState);
    scheduler.step_metric(1.0).unwrap();
    scheduler.step_metric(2.0).unwrap();
    assert_eq!(scheduler.last_lr(0).unwrap(), 0.5);
    let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With).unwrap(), SgdOptions::new().lr(1.0)).unwrap();
    let factor = || Scheduler::exponential(&optimizer, 0.5).unwrap();
    let chained = Scheduler::chained(vec![factor(), factor()]).unwrap();
    chained.step().unwrap();
    assert_eq!(chained.last_lr(0).unwrap(), 0.25);
}

#[test]
fn layers_have_the_shapes_of_torch() {
    let image = ones(&[2, 3, 8, 8]);
    let convolution = nn::Conv2d { stride: 2, padding: 1, bias: false, ..nn::Conv2d::new(3, 4, 3) }.build().unwrap();
    assert_eq!(convolution.forward(&image).unwrap().shape(), [2, 4, 4, 4]);
    assert_eq!(nn::batch_norm(3, None, Some(0.2)).unwrap().forward(&image).unwrap().shape(), [2, 3, 8, 8]);
    let words = nn::embedding(10, 6).unwrap().forward(&Tensor::from_slice(&[1i64, 2], &[1, 2]).unwrap()).unwrap();
    assert_eq!(words.shape(), [1, 2, 6]);
    let seen = nn::attention(6, 2, Causal::Yes, Bias::With, 0.0).unwrap().forward(&words).unwrap();
    assert_eq!(seen.shape(), [1, 2, 6]);
    let normed = nn::layer_norm(6, None).unwrap().forward(&seen).unwrap();
    assert!(normed.mean().unwrap().item().unwrap().abs() < 1e-5);
    assert_eq!(nn::rms_norm(6, Some(1e-6)).unwrap().forward(&seen).unwrap().shape(), [1, 2, 6]);
    let dropout = nn::dropout(0.5).unwrap();
    dropout.train(false).unwrap();
    assert!(!dropout.is_training().unwrap());
    assert!(dropout.forward(&seen).unwrap().equal(&seen).unwrap());
    assert_eq!(nn::activation("swish of old").err().unwrap().code(), ErrorCode::NotFound);

    let tied = nn::sequential(&[&nn::linear(2, 2, Bias::Without).unwrap(), &nn::linear(2, 2, Bias::Without).unwrap()])
        .unwrap();
    tied.tie("1.weight", "0.weight").unwrap();
    assert_eq!((tied.num_parameters().unwrap(), tied.named_parameters().unwrap().len()), (4, 1));
    tied.to(Device::Cpu, Some(DType::Float64)).unwrap();
    assert_eq!(tied.tensor("0.weight").unwrap().dtype(), DType::Float64);
    tied.load_state_dict(&tied.state_dict().unwrap(), Strict::Yes).unwrap();
    assert_eq!(tied.child("9").err().unwrap().code(), ErrorCode::NotFound);
    assert_eq!(Model::from_config("{\"model_type\": \"bird\"}").err().unwrap().code(), ErrorCode::Unsupported);
}

#[test]
fn decoders_generate() {
    let model = Model::from_config(
        "{\"model_type\": \"gpt2\", \"vocab_size\": 8, \"n_positions\": 16, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 1}",
    )
    .unwrap();
    let tokens = Tensor::from_slice(&[1i64, 2, 3], &[1, 3]).unwrap();
    assert_eq!(model.generate(&tokens, None, None).err().unwrap().code(), ErrorCode::InvalidState);
    model.train(false).unwrap();
    let options = GenerateOptions::new().max_new_tokens(4);
    let whole = model.generate(&tokens, None, options.clone()).unwrap();
    let heard = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = heard.clone();
    let ended = model
        .generate_with(&tokens, None, options, move |_| {
            Ok(Some(Value::from(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0)))
        })
        .unwrap();
    let length = |made: &Value| made.get("tokens").unwrap().as_tensor().unwrap().shape()[1];
    assert_eq!((length(&whole), length(&ended), heard.load(std::sync::atomic::Ordering::Relaxed)), (7, 5, 2));
}

#[test]
fn seeds_and_generators_repeat() {
    let state = cpu();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&heard);
    state
        .add_seed_callback(move |seed| {
            record.lock().unwrap().push(seed);
            Ok(())
        })
        .unwrap();
    let generator = Generator::new(7, Device::Cpu).unwrap();
    let fresh = generator.state().unwrap();
    generator.set_seed(8).unwrap();
    assert!(!generator.state().unwrap().equal(&fresh).unwrap());
    generator.set_state(&fresh).unwrap();
    assert!(generator.state().unwrap().equal(&fresh).unwrap());
    state.set_seed(5, DeviceSpecific::Yes, Deterministic::No).unwrap();
    assert_eq!(*heard.lock().unwrap(), [5]);
    state.synchronize_rng_states("generator", Some(&generator)).unwrap();
    assert_eq!(state.synchronize_rng_states("dice", None).unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(generator.set_state(&ones(&[3])).unwrap_err().code(), ErrorCode::TypeMismatch);
}

#[test]
fn the_state_tells_and_checks() {
    let state = StateOptions::new().cpu(true).mixed_precision(Precision::Bf16).build().unwrap();
    assert_eq!((state.mixed_precision(), state.device(), state.backend().as_str()), (Precision::Bf16, Device::Cpu, ""));
    assert_eq!((state.distributed_type(), state.loss_scale()), (DistributedType::No, 1.0));
    assert!(state.is_last_process() && !state.use_distributed());
    assert_eq!((state.split_range(10).unwrap(), state.gradient_accumulation_steps()), (0..10, 1));
    state.set_trigger().unwrap();
    assert!(state.check_trigger().unwrap() && !state.check_trigger().unwrap());
    let buckets = DdpOptions::new().bucket_cap_mb(1.0).comm_state_option(PowerSgdOptions::new().random_seed(3));
    let options = PrepareModelOptions::new().ddp(buckets);
    let model = state.prepare_model(&nn::linear(2, 2, Bias::With).unwrap(), options).unwrap();
    let output = state.autocast(None).unwrap().run(|| ones(&[2, 2]).matmul(&ones(&[2, 2]))).unwrap();
    assert_eq!(output.dtype(), DType::BFloat16);
    assert_eq!(
        state.unwrap_model(&model, UnwrapModelOptions::new().keep_fp32_wrapper(false)).unwrap().kind(),
        "Linear"
    );
    assert!(state.describe().unwrap().contains("bf16"), "{}", state.describe().unwrap());
    state.empty_cache().unwrap();
    assert_eq!(memory_report(ResetPeak::Yes).unwrap().get("cpu").unwrap().get("kept").unwrap().as_int().unwrap(), 0);
    assert!(state.step_report(ResetReport::Yes).unwrap().get("steps").is_some());
    assert!(state.flight_record().unwrap().contains("operations"));
    assert_eq!(state.set_autocast(AutocastOptions::new()).unwrap_err().code(), ErrorCode::InvalidState);
    state.free_memory().unwrap();
    let error = StateOptions::new().cpu(true).process_index(5).num_processes(2).build().err().unwrap();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error:?}");
    let error = StateOptions::new().rng_types("to\0rch").build().err().unwrap();
    assert!(error.message().contains("NUL"), "{error:?}");
}

#[test]
fn local_sgd_averages_the_weights() {
    let weights = ranks::run(2, |state| {
        let plain = nn::linear(1, 1, Bias::Without).unwrap();
        let sgd = Optimizer::sgd(&plain, SgdOptions::new().lr(1.0)).unwrap();
        let (model, optimizer) = state.prepare((&plain, &sgd)).unwrap();
        plain.tensor("weight").unwrap().detach().unwrap().zero_().unwrap();
        let region = state.local_sgd(&model, 2, LocalSgdOptions::new(), None).unwrap();
        let averaged: Vec<bool> = (0..2)
            .map(|_| {
                let input = ones(&[1, 1]).mul_scalar(state.process_index()).unwrap();
                let mut loss = model.forward(&input).unwrap().sum().unwrap();
                state.backward(&mut loss).unwrap();
                optimizer.step().unwrap();
                optimizer.zero_grad().unwrap();
                region.step().unwrap()
            })
            .collect();
        region.load_state_dict(&region.state_dict().unwrap()).unwrap();
        region.end().unwrap();
        (averaged, plain.tensor("weight").unwrap().item().unwrap())
    });
    assert_eq!(weights, vec![(vec![false, true], -1.0); 2]);
}

#[test]
fn ranks_with_different_numbers_of_batches_join() {
    ranks::run(2, |state| {
        let plain = nn::linear(1, 1, Bias::With).unwrap();
        let sgd = Optimizer::sgd(&plain, SgdOptions::new().lr(0.1)).unwrap();
        let (model, optimizer) = state.prepare((&plain, &sgd)).unwrap();
        let region = state.join_uneven_inputs(&[&model], Some(EvenBatches::No)).unwrap();
        for _ in 0..1 + state.process_index() {
            let mut loss = model.forward(&ones(&[1, 1])).unwrap().sum().unwrap();
            state.backward(&mut loss).unwrap();
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
        }
        region.end().unwrap();
        let weight = plain.tensor("weight").unwrap().detach().unwrap();
        let all = state.gather(&weight).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(all[0], all[1]);
    });
}

#[test]
fn a_region_that_was_dropped_early_outlives_its_state() {
    let state = cpu();
    let outer = state.autocast(None).unwrap();
    let inner = no_grad().unwrap();
    drop(outer);
    drop(state);
    inner.end().unwrap();
}

#[test]
fn batch_sizes_are_searched_with_a_choice_of_the_program() {
    let state = cpu();
    let size = state
        .find_executable_batch_size_with(
            64,
            |size| if size > 10 { Err(Error::new(ErrorCode::OutOfMemory, "full").into()) } else { Ok(()) },
            |size, _next, reason| {
                assert!(reason.contains("full"));
                Ok(size / 2)
            },
        )
        .unwrap();
    assert_eq!(size, 8);
    let error = state.find_executable_batch_size(4, |_| Err("broken".into())).unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::User, "broken"));
}

#[test]
fn log_messages_reach_a_closure() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&heard);
    set_log(LogLevel::Debug, move |level, line| record.lock().unwrap().push((level, line.to_string()))).unwrap();
    let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With).unwrap(), SgdOptions::new()).unwrap();
    let other = Scheduler::exponential(&optimizer, 0.25).unwrap().state_dict().unwrap();
    // A setting that differs is a warning.
    Scheduler::exponential(&optimizer, 0.5).unwrap().load_state_dict(&other).unwrap();
    unset_log().unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.iter().any(|(level, line)| *level == LogLevel::Warning && line.contains("gamma")), "{heard:?}");
}

#[test]
fn values_keep_their_kinds() {
    let tuple = Value::tuple([Value::from(1), Value::bytes(b"a\0b", Some("python/pickle")).unwrap()]).unwrap();
    assert_eq!((tuple.kind(), tuple.len()), (Kind::Tuple, 2));
    let bytes = tuple.at(1).unwrap();
    assert_eq!((bytes.as_bytes(), bytes.bytes_type()), (Some(&b"a\0b"[..]), Some("python/pickle")));
    let empty = Value::bytes(b"", None).unwrap();
    assert_eq!((empty.as_bytes(), empty.bytes_type()), (Some(&b""[..]), None));
    let mut map = Value::map([("1", Value::from(2))]).unwrap();
    map.put(&Value::from(1), &tuple).unwrap();
    assert_eq!(map.find(&Value::from(1)).unwrap().kind(), Kind::Tuple);
    assert_eq!(map.get("1").and_then(Value::as_int), Some(2));
    assert_eq!((map.key(0), map.key(1), map.key_at(1).and_then(Value::as_int)), (Some("1"), None, Some(1)));
    assert_eq!(format!("{map:?}"), r#"{"1": 2, 1: (1, 3 bytes)}"#);
    assert!(map.put(&empty, &tuple).is_err() && map.find(&empty).is_none());
}

#[test]
fn models_without_memory() {
    let device = |model: &Model| model.tensor("weight").unwrap().device();
    let empty = init_empty_weights(None).unwrap().run(|| nn::linear(2, 2, Bias::With)).unwrap();
    assert_eq!(device(&empty), Device::Meta);
    let made =
        init_on_device(Device::Cpu, Some(IncludeBuffers::Yes)).unwrap().run(|| nn::linear(2, 2, Bias::With)).unwrap();
    assert_eq!(device(&made), Device::Cpu);
    assert!(init_on_device(Device::Cuda(200), None).is_err());
}
