// SPDX-License-Identifier: Apache-2.0
//! The loop: data-parallel training, accumulation, checkpoints, parameters only.
mod ranks;

use accel::*;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

/// The weight of a linear model after some steps on eight rows, which the ranks share.
fn train(state: State) -> Vec<f32> {
    let x = ops::arange(0, 16, Some(DType::Float32)).unwrap().reshape(&[8, 2]).unwrap().div_scalar(16).unwrap();
    let y = x.sum_dim(Some(&[1]), KeepDim::Yes).unwrap();
    let plain = nn::linear(2, 1, Bias::Without).unwrap();
    let start = Tensor::from_slice(&[0.5f32, -0.25], &[1, 2]).unwrap();
    plain.tensor("weight").unwrap().detach().unwrap().copy_from(&start).unwrap();
    let loader =
        DataLoader::new(&Dataset::tensors(&[&x, &y]).unwrap(), DataLoaderOptions::new().batch_size(8)).unwrap();
    let sgd = Optimizer::sgd(&plain, SgdOptions::new().lr(0.1)).unwrap();
    let (mut loader, model, optimizer) = state.prepare((&loader, &plain, &sgd)).unwrap();
    for _ in 0..5 {
        for batch in &mut loader {
            let batch = batch.unwrap();
            state
                .accumulate(&[&model])
                .unwrap()
                .run(|| {
                    let mut loss = model.forward(batch.tensor_at(0)?)?.mse_loss(batch.tensor_at(1)?)?;
                    state.backward(&mut loss)?;
                    state.clip_grad_norm(&plain, 10.0, 2.0)?;
                    optimizer.step()?;
                    optimizer.zero_grad()
                })
                .unwrap();
        }
    }
    plain.tensor("weight").unwrap().to_vec().unwrap()
}

#[test]
fn ranks_train_as_one_process_does() {
    let alone = ranks::run(1, train).remove(0);
    let shared = ranks::run_with(2, |options| options.split_batches(true), train);
    assert_eq!(shared[0], shared[1]);
    for (one, other) in alone.iter().zip(&shared[0]) {
        assert!((one - other).abs() < 1e-6, "{alone:?} {shared:?}");
    }
}

#[test]
fn gradients_of_the_program_are_averaged_where_they_lie() {
    ranks::run(2, |state| {
        let model = Model::container("Own").unwrap();
        let memory = vec![1.0f32, 2.0];
        let place = memory.as_ptr();
        model.add_parameter("weight", Tensor::from_vec(memory, &[2]).unwrap(), RequiresGrad::Yes).unwrap();
        assert_eq!(model.tensor("weight").unwrap().with_slice(<[f32]>::as_ptr).unwrap(), place);
        let mut parameters = Parameters::new(&state, &model, ParametersOptions::new()).unwrap();
        let mut gradient = parameters.gradient(0).unwrap();
        let bucket = gradient.data_ptr().unwrap();
        gradient.with_slice_mut(|elements| elements.fill(state.process_index() as f32)).unwrap();
        parameters.grad_ready(0, None).unwrap();
        parameters.synchronize().unwrap();
        assert_eq!(gradient.to_vec::<f32>().unwrap(), [0.5, 0.5]);
        assert_eq!(parameters.gradient(0).unwrap().data_ptr().unwrap(), bucket);

        let work = {
            parameters.grad_ready(0, Some(&Tensor::full(&[2], 3.0, DType::Float32, Device::Cpu).unwrap())).unwrap();
            parameters.synchronize_async().unwrap()
        };
        work.wait().unwrap();
        assert_eq!(gradient.to_vec::<f32>().unwrap(), [3.0, 3.0]);
        assert_eq!(parameters.synchronize().unwrap_err().code(), ErrorCode::InvalidState);
        assert_eq!(parameters.gradient(5).unwrap_err().code(), ErrorCode::InvalidArgument);
    });
}

struct Counter(Arc<AtomicI64>);

impl Checkpoint for Counter {
    fn save(&mut self) -> CallbackResult<Value> {
        Ok(self.0.load(Ordering::SeqCst).into())
    }

    fn load(&mut self, state: &Value) -> CallbackResult {
        self.0.store(state.as_int().ok_or("expected a number")?, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn checkpoints_hold_objects_of_the_program() {
    let folder = std::env::temp_dir().join(format!("accel-rust-checkpoint-{}", std::process::id()));
    let state = StateOptions::new().cpu(true).build().unwrap();
    let count = Arc::new(AtomicI64::new(5));
    state.register_for_checkpointing("counter", Counter(Arc::clone(&count))).unwrap();
    let plain = nn::linear(2, 2, Bias::With).unwrap();
    let _prepared = state.prepare_model(&plain, PrepareModelOptions::new()).unwrap();
    let before = plain.tensor("weight").unwrap().to_vec::<f32>().unwrap();
    state.save_state(folder.as_path(), None).unwrap();
    plain.tensor("weight").unwrap().detach().unwrap().zero_().unwrap();
    count.store(0, Ordering::SeqCst);
    state.load_state(folder.as_path(), None).unwrap();
    assert_eq!((plain.tensor("weight").unwrap().to_vec::<f32>().unwrap(), count.load(Ordering::SeqCst)), (before, 5));
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(state.load_state(folder.as_path(), None).unwrap_err().code(), ErrorCode::NotFound);

    let file = folder.with_extension("safetensors");
    save(
        &plain.state_dict().unwrap(),
        Some(&Value::map([("by", Value::string("test").unwrap())]).unwrap()),
        &file,
        None,
    )
    .unwrap();
    assert!(load(&file, None).unwrap().equals(&plain.state_dict().unwrap()).unwrap());
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn projects_name_checkpoints_and_hooks_see_them() {
    let folder = std::env::temp_dir().join(format!("accel-rust-project-{}", std::process::id()));
    let state = StateOptions::new().cpu(true).build().unwrap();
    let plain = nn::linear(2, 2, Bias::With).unwrap();
    let _prepared = state.prepare_model(&plain, PrepareModelOptions::new()).unwrap();
    let drawn = Arc::new(AtomicI64::new(3));
    state.register_random_state("program", Counter(Arc::clone(&drawn))).unwrap();
    state.register_for_checkpointing(None, Counter(Arc::new(AtomicI64::new(1)))).unwrap();
    let calls = Arc::new(AtomicI64::new(0));
    let counted = Arc::clone(&calls);
    let hook = state
        .register_save_state_pre_hook(move |models, folder| {
            assert_eq!(models.len(), 1);
            std::fs::write(std::path::Path::new(folder).join("extra"), "text")?;
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(Some(Value::list([Value::none()])?))
        })
        .unwrap();
    let options = ProjectOptions::new().project_dir(folder.to_str().unwrap()).automatic_checkpoint_naming(true);
    state.set_project(options.total_limit(1)).unwrap();
    state.save_state(None, SaveStateOptions::new().durable(false)).unwrap();
    state.remove_checkpoint_hook(hook).unwrap();
    let first = folder.join("checkpoints/checkpoint_0");
    assert!(first.join("extra").exists() && !first.join("model.safetensors").exists());
    assert!(first.join("custom_checkpoint_0.pkl").exists());
    state.save_state(None, None).unwrap();
    drawn.store(0, Ordering::SeqCst);
    state.load_state(None, LoadStateOptions::new().verify(false)).unwrap();
    assert_eq!((drawn.load(Ordering::SeqCst), calls.load(Ordering::SeqCst)), (3, 1));
    assert!(!first.exists());
    assert_eq!(checkpoint_list(&folder).unwrap().len(), 1);
    let saved = folder.join("checkpoints/checkpoint_1");
    assert_eq!(checkpoint_verify(&saved).unwrap().get("problems").unwrap().len(), 0);
    assert_eq!(state.checkpoint_progress().unwrap(), (0, 0));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn regions_end_in_reverse_order_whatever_is_dropped_first() {
    let mut weight = Tensor::full(&[1], 1.0, DType::Float32, Device::Cpu).unwrap();
    weight.set_requires_grad(true).unwrap();
    let records = || (&weight * 2.0).unwrap().requires_grad().unwrap();
    let outer = no_grad().unwrap();
    let middle = enable_grad().unwrap();
    let inner = no_grad().unwrap();
    let error = middle.end().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidState);
    drop(outer);
    assert!(!records());
    inner.end().unwrap();
    assert!(records());
    // A panic ends them too.
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        no_grad().unwrap().run(|| -> Result<()> { panic!("inside") })
    }));
    assert!(unwound.is_err() && records());
}

#[test]
fn samplers_and_loaders_are_those_of_the_program() {
    let rows = ops::arange(0, 6, Some(DType::Int64)).unwrap();
    let dataset = Dataset::tensors(&[&rows]).unwrap();
    let backwards = Sampler::custom(6, |epoch, order| {
        for (place, item) in order.iter_mut().zip((0..6).rev()) {
            *place = (item + epoch) % 6;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(backwards.indices(1).unwrap().to_vec::<i64>().unwrap(), [0, 5, 4, 3, 2, 1]);
    let options = DataLoaderOptions::new().batch_size(4);
    let mut loader = DataLoader::with_sampler(&dataset, &backwards, options).unwrap();
    let ids = |batch: Result<Value>| batch.unwrap().tensor_at(0).unwrap().to_vec::<i64>().unwrap();
    assert_eq!((loader.num_batches().unwrap(), dataset.len(), backwards.len()), (2, 6, 6));
    assert_eq!(loader.by_ref().map(ids).collect::<Vec<_>>(), [vec![5, 4, 3, 2], vec![1, 0]]);
    assert_eq!(loader.next().map(ids), Some(vec![0, 5, 4, 3]));
    let position = loader.state_dict().unwrap();
    assert_eq!(loader.next().map(ids), Some(vec![2, 1]));
    loader.load_state_dict(&position).unwrap();
    assert_eq!(loader.next().map(ids), Some(vec![2, 1]));
    assert_eq!(loader.next().map(ids), None);
    loader.set_epoch(0).unwrap();
    assert_eq!(loader.skip_first_batches(1).unwrap().next().map(ids), Some(vec![1, 0]));
    assert_eq!(dataset.subset(2..4).unwrap().item(1).unwrap().tensor_at(0).unwrap().item_int().unwrap(), 3);
    assert_eq!(dataset.item(6).unwrap_err().code(), ErrorCode::NotFound);
}

#[test]
fn linear_layers_compute_in_8_bits_by_a_recipe() {
    let state = StateOptions::new().cpu(true).mixed_precision(Precision::Fp8).build().unwrap();
    state.set_fp8(Fp8Options::new().backend(Fp8Backend::Te).amax_history_length(4)).unwrap();
    let too_long = state.set_fp8(Fp8Options::new().amax_history_length(0)).unwrap_err();
    assert_eq!(too_long.code(), ErrorCode::InvalidArgument);
    state.set_fp8_filter(|name, weight| Ok(Some((name != "1" && weight.shape()[0] == 16).into()))).unwrap();
    let layers: Vec<Model> = (0..3).map(|_| nn::linear(16, 16, Bias::With).unwrap()).collect();
    let plain = nn::sequential(&layers.iter().collect::<Vec<_>>()).unwrap();
    let model = state.prepare(&plain).unwrap();
    let x = Tensor::ones(&[8, 16], DType::Float32, Device::Cpu).unwrap();
    let mut loss = model.forward(&x).unwrap().square().unwrap().mean().unwrap();
    state.backward(&mut loss).unwrap();
    let described = fp8_describe(&model).unwrap();
    let layers = described.get("layers").unwrap();
    assert_eq!((layers.len(), described.get("scaling").unwrap().as_str()), (2, Some("DELAYED")), "{described:?}");
}
