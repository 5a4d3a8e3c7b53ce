//! Slices of memory that tensors share: one that writes, or any number that read, and no call of the library against them.
mod ranks;

use accel::*;
use std::time::Duration;

fn numbers() -> Tensor {
    Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[4]).unwrap()
}

fn refused<T>(result: Result<T>, by: &str) {
    let error = result.err().expect("an error");
    assert_eq!(error.code(), ErrorCode::InvalidState, "{error:?}");
    assert!(error.message().contains(by), "{error:?}");
}

#[test]
fn one_slice_writes_or_several_read() {
    let mut whole = numbers();
    let (mut head, mut tail) = (whole.narrow(0, 0, 2).unwrap(), whole.narrow(0, 2, 2).unwrap());
    let mut other = whole.shallow_clone();
    {
        let (a, b, c) = (whole.as_slice::<f32>().unwrap(), other.as_slice::<f32>().unwrap(), tail.as_slice::<f32>());
        assert_eq!((a.as_ptr(), a.len()), (b.as_ptr(), 4));
        assert_eq!(c.unwrap(), [3.0, 4.0]);
        refused(head.as_mut_slice::<f32>(), "a slice or view");
    }
    {
        // Parts that do not meet are apart.
        let (mut first, mut last) = (head.as_mut_slice::<f32>().unwrap(), tail.as_mut_slice::<f32>().unwrap());
        first[0] = 8.0;
        last[1] = 9.0;
        refused(other.as_slice::<f32>(), "a slice or view");
        refused(other.as_mut_slice::<f32>(), "a slice or view");
    }
    assert_eq!(whole.as_mut_slice::<f32>().unwrap(), [8.0, 2.0, 3.0, 9.0]);
    // A slice may go on as a reference to another thread.
    let read = whole.as_slice::<f32>().unwrap();
    let elements: &[f32] = &read;
    let sum = std::thread::scope(|threads| threads.spawn(|| elements.iter().sum::<f32>()).join().unwrap());
    assert_eq!(sum, 22.0);
}

#[test]
fn calls_do_not_write_under_a_slice() {
    let (mut whole, three) = (numbers(), Tensor::scalar(3.0f32).unwrap());
    let alias = whole.shallow_clone();
    let seen = alias.as_slice::<f32>().unwrap();
    refused(whole.add_(&three, 1), "a slice or view");
    refused(whole.copy_from(&three), "a slice or view");
    refused(Op::find("aten::zero_", "").unwrap().call_in_place(&mut whole, &[]), "a slice or view");
    assert_eq!(whole.sum().unwrap().item().unwrap(), 10.0); // which only reads
    assert_eq!(seen, [1.0, 2.0, 3.0, 4.0]);
    drop(seen);
    whole.add_(&three, 1).unwrap();
    assert_eq!(alias.to_vec::<f32>().unwrap(), [4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn calls_do_not_read_under_a_slice_that_writes() {
    let mut whole = numbers();
    let alias = whole.shallow_clone();
    let list = Value::list([alias.shallow_clone()]).unwrap();
    let mut changed = whole.as_mut_slice::<f32>().unwrap();
    refused(alias.sum(), "a slice or view");
    refused(alias.to_vec::<f32>(), "a slice or view");
    refused(alias.item(), "a slice or view");
    refused(alias.deep_clone(), "a slice or view");
    refused(list.to_json(), "a slice or view");
    refused(ops::cat(&[&alias], 0), "a slice or view");
    changed[0] = 5.0;
    drop(changed);
    assert_eq!(list.to_json().unwrap(), "[[5.0,2.0,3.0,4.0]]");
}

#[test]
fn a_step_needs_the_slices_of_its_thread_dropped() {
    let model = nn::linear(2, 1, true).unwrap();
    let optimizer = Optimizer::sgd(&model, SgdOptions::new().lr(0.5)).unwrap();
    let weight = model.tensor("weight").unwrap();
    let input = Tensor::from_slice(&[1.0f32, 2.0], &[1, 2]).unwrap();
    let mut loss = model.forward(&input).unwrap().sum().unwrap();
    {
        let _seen = input.as_slice::<f32>().unwrap();
        model.forward(&input).unwrap(); // which reads its input, and writes nothing that is held
        refused(loss.backward(), "this thread");
        refused(optimizer.step(), "this thread");
        refused(optimizer.fill_gradients_with_zeros(), "this thread");
    }
    {
        let _seen = weight.as_slice::<f32>().unwrap();
        refused(model.to(Device::Cpu, Some(DType::Float64)), "a slice or view");
        refused(model.load_state_dict(&model.state_dict().unwrap(), true), "a slice or view");
    }
    let before = weight.to_vec::<f32>().unwrap();
    loss.backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(weight.as_slice::<f32>().unwrap(), [before[0] - 0.5, before[1] - 1.0]);
}

#[test]
fn what_a_call_uses_in_the_background_is_not_seen_before_it_has_ended() {
    ranks::run(2, |state| {
        let tensor = Tensor::full(&[3], 1.0, DType::Float32, Device::Cpu).unwrap();
        let mut alias = tensor.shallow_clone();
        let rank = state.process_index();
        let work = if rank == 0 {
            let work = state.recv_async(tensor, 1, 7).unwrap();
            refused(alias.as_slice::<f32>(), "under way");
            refused(alias.zero_(), "under way");
            state.send(&Tensor::scalar(0.0f32).unwrap(), 1, 8).unwrap();
            work
        } else {
            state.recv(&mut Tensor::scalar(1.0f32).unwrap(), 0, 8).unwrap();
            state.send_async(tensor.mul_scalar(5).unwrap(), 0, 7).unwrap()
        };
        while !work.wait_for(Duration::from_secs(60)).unwrap() {}
        assert_eq!(alias.as_slice::<f32>().unwrap(), [if rank == 0 { 5.0 } else { 1.0 }; 3]);
        drop(work);

        // One that was dropped goes on with its memory.
        let sum = state.all_reduce_async(alias.shallow_clone(), Reduction::Sum).unwrap();
        drop(sum);
        while !state.progress(Duration::from_secs(60)).unwrap() {}
        assert_eq!(alias.as_mut_slice::<f32>().unwrap(), [6.0; 3]);
    });
}

#[test]
fn a_gradient_that_was_reported_is_the_librarys() {
    let state = StateOptions::new().cpu(true).build().unwrap();
    let model = Model::container("Own").unwrap();
    model.add_parameter("weight", numbers(), true).unwrap();
    let mut parameters = Parameters::new(&state, &model, ParametersOptions::new()).unwrap();
    let mut gradient = parameters.gradient(0).unwrap();
    {
        let mut written = gradient.as_mut_slice::<f32>().unwrap();
        written.fill(2.0);
        refused(parameters.grad_ready(0, None), "a slice or view");
    }
    parameters.grad_ready(0, None).unwrap();
    refused(gradient.as_slice::<f32>(), "under way");
    parameters.synchronize().unwrap();
    assert_eq!(gradient.as_slice::<f32>().unwrap(), [2.0; 4]);
    drop(parameters);
    state.end_training().unwrap();
}

#[test]
fn a_region_that_writes_ends_when_no_slice_is_held() {
    let state = StateOptions::new().cpu(true).build().unwrap();
    let model = nn::linear(2, 1, true).unwrap();
    let model = state.prepare_model(&model, DdpOptions::new()).unwrap();
    let weight = model.named_parameters().unwrap().remove(0).1;
    let region = state.local_sgd(&model, 1, LocalSgdOptions::new(), None).unwrap();
    let seen = weight.as_slice::<f32>().unwrap();
    refused(region.end(), "this thread");
    drop(seen);
    no_grad().unwrap().end().unwrap(); // with this one it ends
    no_grad().unwrap().end().unwrap();
    drop((weight, model));
    state.end_training().unwrap();
}
