// SPDX-License-Identifier: Apache-2.0
//! Slices of memory that tensors share: one that writes, or any number that read, and no call of the library against them.
mod ranks;

use accel::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::time::Duration;

fn numbers() -> Tensor {
    Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[4]).unwrap()
}

fn refused<T>(result: Result<T>, by: &str) {
    let error = result.err().expect("an error");
    assert_eq!(error.code(), ErrorCode::InvalidState, "{error:?}");
    assert!(error.message().contains(by), "{error:?}");
}

fn seen(tensor: &Tensor) -> Result<Vec<f32>> {
    tensor.with_slice(<[f32]>::to_vec)
}

fn set(tensor: &mut Tensor, index: usize, number: f32) -> Result<()> {
    tensor.with_slice_mut(|elements| elements[index] = number)
}

#[test]
fn one_slice_writes_or_several_read() {
    let mut whole = numbers();
    let (mut head, mut tail) = (whole.narrow(0, 0, 2).unwrap(), whole.narrow(0, 2, 2).unwrap());
    let mut other = whole.shallow_clone();
    let lent = whole.with_slice::<f32, _>(|a| {
        other.with_slice::<f32, _>(|b| assert_eq!((a.as_ptr(), a.len()), (b.as_ptr(), 4))).unwrap();
        assert_eq!(seen(&tail).unwrap(), [3.0, 4.0]);
        refused(set(&mut head, 0, 9.0), "a slice or view");
        // What was refused is not lent.
        assert_eq!(seen(&head).unwrap(), [1.0, 2.0]);
        a.as_ptr()
    });
    assert_eq!(lent.unwrap(), whole.data_ptr().unwrap() as *const f32);
    // Parts that do not meet are apart.
    head.with_slice_mut::<f32, _>(|first| {
        first[0] = 8.0;
        set(&mut tail, 1, 9.0).unwrap();
        refused(seen(&other), "a slice or view");
        refused(set(&mut other, 0, 0.0), "a slice or view");
    })
    .unwrap();
    assert_eq!(whole.with_slice_mut(|elements: &mut [f32]| elements.to_vec()).unwrap(), [8.0, 2.0, 3.0, 9.0]);
    // A slice may be passed as a reference to another thread.
    let sum = |read: &[f32]| std::thread::scope(|threads| threads.spawn(|| read.iter().sum::<f32>()).join().unwrap());
    assert_eq!(whole.with_slice(sum).unwrap(), 22.0);
}

#[test]
fn other_threads_are_refused_too() {
    let mut whole = numbers();
    let mut alias = whole.shallow_clone();
    whole
        .with_slice_mut::<f32, _>(|changed| {
            std::thread::scope(|threads| {
                let other = || {
                    refused(seen(&alias), "a slice or view");
                    refused(set(&mut alias, 0, 5.0), "a slice or view");
                    refused(alias.zero_(), "a slice or view");
                    refused(alias.sum(), "a slice or view");
                };
                threads.spawn(other).join().unwrap();
            });
            changed[0] = 7.0;
        })
        .unwrap();
    assert_eq!(alias.to_vec::<f32>().unwrap(), [7.0, 2.0, 3.0, 4.0]);
}

/// Two threads write the same memory as often as they can: never at the same time.
#[test]
fn two_threads_never_write_at_once() {
    let mut first = Tensor::from_vec(vec![0i64, 0], &[2]).unwrap();
    let mut second = first.shallow_clone();
    let write = |tensor: &mut Tensor| {
        let mut written = 0;
        for _ in 0..20_000 {
            let result = tensor.with_slice_mut::<i64, _>(|elements| {
                elements[0] += 1;
                elements[1] += 1;
                assert_eq!(elements[0], elements[1]);
            });
            match result {
                Ok(()) => written += 1,
                Err(error) => assert_eq!(error.code(), ErrorCode::InvalidState),
            }
        }
        written
    };
    let written = std::thread::scope(|threads| {
        let other = threads.spawn(|| write(&mut second));
        write(&mut first) + other.join().unwrap()
    });
    assert_eq!(first.to_vec::<i64>().unwrap(), [written, written]);
}

#[test]
fn what_is_lent_comes_back_when_the_closure_panics() {
    let mut tensor = numbers();
    let panicked = catch_unwind(AssertUnwindSafe(|| tensor.with_slice_mut(|_: &mut [f32]| panic!("in between"))));
    assert!(panicked.is_err());
    tensor.zero_().unwrap();
    assert_eq!(seen(&tensor).unwrap(), [0.0; 4]);
}

#[test]
fn closures_in_closures_have_an_end() {
    fn deeper(tensor: &Tensor, depth: usize) -> Result<usize> {
        tensor.with_slice(|_: &[f32]| deeper(tensor, depth + 1).unwrap_or(depth))
    }
    let tensor = numbers();
    assert!(deeper(&tensor, 1).unwrap() >= 200);
    assert_eq!(seen(&tensor).unwrap().len(), 4);
}

#[test]
fn calls_do_not_write_under_a_slice() {
    let (mut whole, three) = (numbers(), Tensor::scalar(3.0f32).unwrap());
    let alias = whole.shallow_clone();
    alias
        .with_slice::<f32, _>(|seen| {
            refused(whole.add_(&three, 1), "a slice or view");
            refused(whole.copy_from(&three), "a slice or view");
            refused(Op::find("aten::zero_", "").unwrap().call_in_place(&mut whole, &[]), "a slice or view");
            assert_eq!(whole.sum().unwrap().item().unwrap(), 10.0); // which only reads
            assert_eq!(seen, [1.0, 2.0, 3.0, 4.0]);
        })
        .unwrap();
    whole.add_(&three, 1).unwrap();
    assert_eq!(alias.to_vec::<f32>().unwrap(), [4.0, 5.0, 6.0, 7.0]);
}

#[test]
fn calls_do_not_read_under_a_slice_that_writes() {
    let mut whole = numbers();
    let alias = whole.shallow_clone();
    let list = Value::list([alias.shallow_clone()]).unwrap();
    let tuple = Value::tuple([alias.shallow_clone()]).unwrap();
    whole
        .with_slice_mut::<f32, _>(|changed| {
            refused(alias.sum(), "a slice or view");
            refused(alias.to_vec::<f32>(), "a slice or view");
            refused(alias.item(), "a slice or view");
            refused(alias.deep_clone(), "a slice or view");
            refused(list.to_json(), "a slice or view");
            refused(tuple.to_json(), "a slice or view");
            refused(ops::cat(&[&alias], 0), "a slice or view");
            changed[0] = 5.0;
        })
        .unwrap();
    assert_eq!(list.to_json().unwrap(), "[[5.0,2.0,3.0,4.0]]");
}

#[test]
fn a_step_needs_the_slices_of_its_thread_ended() {
    let model = nn::linear(2, 1, Bias::With).unwrap();
    let optimizer = Optimizer::sgd(&model, SgdOptions::new().lr(0.5)).unwrap();
    let weight = model.tensor("weight").unwrap();
    let input = Tensor::from_slice(&[1.0f32, 2.0], &[1, 2]).unwrap();
    let mut loss = model.forward(&input).unwrap().sum().unwrap();
    input
        .with_slice(|_: &[f32]| {
            model.forward(&input).unwrap(); // which reads its input, and writes nothing that is lent
            refused(loss.backward(), "this thread");
            refused(optimizer.step(), "this thread");
            refused(optimizer.fill_gradients_with_zeros(), "this thread");
        })
        .unwrap();
    weight
        .with_slice(|_: &[f32]| {
            refused(model.to(Device::Cpu, Some(DType::Float64)), "a slice or view");
            refused(model.load_state_dict(&model.state_dict().unwrap(), Strict::Yes), "a slice or view");
        })
        .unwrap();
    let before = weight.to_vec::<f32>().unwrap();
    loss.backward().unwrap();
    optimizer.step().unwrap();
    assert_eq!(seen(&weight).unwrap(), [before[0] - 0.5, before[1] - 1.0]);
}

#[test]
fn what_a_call_uses_in_the_background_is_not_seen_before_it_has_ended() {
    ranks::run(2, |state| {
        let tensor = Tensor::full(&[3], 1.0, DType::Float32, Device::Cpu).unwrap();
        let mut alias = tensor.shallow_clone();
        let rank = state.process_index();
        let work = if rank == 0 {
            let work = state.recv_async(tensor, 1, 7).unwrap();
            refused(seen(&alias), "under way");
            refused(alias.zero_(), "under way");
            state.send(&Tensor::scalar(0.0f32).unwrap(), 1, 8).unwrap();
            work
        } else {
            state.recv(&mut Tensor::scalar(1.0f32).unwrap(), 0, 8).unwrap();
            state.send_async(tensor.mul_scalar(5).unwrap(), 0, 7).unwrap()
        };
        while !work.wait_for(Duration::from_secs(60)).unwrap() {}
        assert_eq!(seen(&alias).unwrap(), [if rank == 0 { 5.0 } else { 1.0 }; 3]);
        drop(work);

        // Nor does one begin with what is lent.
        let other = alias.shallow_clone();
        let under = alias.with_slice_mut(|_: &mut [f32]| state.all_reduce_async(other, Reduction::Sum).err());
        assert_eq!(under.unwrap().expect("an error").code(), ErrorCode::InvalidState);

        // One that was dropped continues with its memory.
        let sum = state.all_reduce_async(alias.shallow_clone(), Reduction::Sum).unwrap();
        drop(sum);
        while !state.progress(Duration::from_secs(60)).unwrap() {}
        assert_eq!(alias.with_slice_mut(|elements: &mut [f32]| elements.to_vec()).unwrap(), [6.0; 3]);
    });
}

#[test]
fn a_gradient_that_was_reported_is_the_librarys() {
    let state = StateOptions::new().cpu(true).build().unwrap();
    let model = Model::container("Own").unwrap();
    model.add_parameter("weight", numbers(), RequiresGrad::Yes).unwrap();
    let mut parameters = Parameters::new(&state, &model, ParametersOptions::new()).unwrap();
    let mut gradient = parameters.gradient(0).unwrap();
    gradient
        .with_slice_mut::<f32, _>(|written| {
            written.fill(2.0);
            refused(parameters.grad_ready(0, None), "a slice or view");
        })
        .unwrap();
    parameters.grad_ready(0, None).unwrap();
    refused(seen(&gradient), "under way");
    parameters.synchronize().unwrap();
    assert_eq!(seen(&gradient).unwrap(), [2.0; 4]);
    drop(parameters);
    state.end_training().unwrap();
}

#[test]
fn a_region_that_writes_ends_when_nothing_is_lent() {
    let state = StateOptions::new().cpu(true).build().unwrap();
    let model = nn::linear(2, 1, Bias::With).unwrap();
    let model = state.prepare_model(&model, PrepareModelOptions::new()).unwrap();
    let weight = model.named_parameters().unwrap().remove(0).1;
    let region = state.local_sgd(&model, 1, LocalSgdOptions::new(), None).unwrap();
    weight.with_slice(|_: &[f32]| refused(region.end(), "this thread")).unwrap();
    no_grad().unwrap().end().unwrap(); // with this one it ends
    no_grad().unwrap().end().unwrap();
    drop((weight, model));
    state.end_training().unwrap();
}
