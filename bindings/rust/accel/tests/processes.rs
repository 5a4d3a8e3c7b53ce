// SPDX-License-Identifier: Apache-2.0
//! Threads, forked processes, and what is left in the end. One test, because it counts the objects of the process.
use accel::*;
use std::os::raw::c_int;
use std::thread;

extern "C" {
    fn fork() -> c_int;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

fn is_send<T: Send>() {}
fn is_sync<T: Sync>() {}

/// Whether a type is Send and Sync: an inherent function comes before that of a trait.
struct Question<T>(std::marker::PhantomData<T>);
trait Otherwise: Sized {
    fn is_sync(&self) -> bool {
        false
    }
    fn is_send(&self) -> bool {
        false
    }
}
impl<T> Otherwise for Question<T> {}
impl<T: Sync> Question<T> {
    fn is_sync(&self) -> bool {
        true
    }
}
impl<T: Send> Question<T> {
    fn is_send(&self) -> bool {
        true
    }
}

macro_rules! ask {
    ($question:ident: $($kind:ty),*) => {
        [$(Question::<$kind>(std::marker::PhantomData).$question()),*]
    };
}

#[test]
fn threads_forks_and_objects() {
    types_are_for_threads_as_the_header_says();
    objects_are_used_on_other_threads();
    a_forked_process_gets_an_error();
    assert_eq!(live_objects(), 0);
}

fn types_are_for_threads_as_the_header_says() {
    assert_eq!(ask!(is_send: State, StateReader, Tensor, Value, Op, Model, Optimizer), [true; 7]);
    is_send::<(Scheduler, Dataset, Sampler, DataLoader, Parameters, Generator, Work<Tensor>)>();
    is_send::<(Error, StateOptions, AdamOptions, DdpOptions, DlPack)>();
    is_sync::<(StateReader, Tensor, Value, Op, Parameters, Error, StateOptions)>();
    assert_eq!(ask!(is_sync: Tensor, Value), [true; 2]);
    assert_eq!(ask!(is_sync: State, Model, Optimizer, Scheduler, Dataset, Sampler, DataLoader, Generator), [false; 8]);
    assert_eq!(ask!(is_sync: Work<Tensor>, Scope<'static>), [false; 2]);
    // What belongs to its thread.
    assert_eq!(ask!(is_send: Scope<'static>, LocalSgd<'static>), [false; 2]);
}

fn objects_are_used_on_other_threads() {
    let state = StateOptions::new().cpu(true).build().unwrap();
    let (reader, tensor) = (state.reader(), Tensor::from_slice(&[1.0f32, 2.0], &[2]).unwrap());
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                assert_eq!(reader.num_processes(), 1);
                assert_eq!(tensor.sum().unwrap().item().unwrap(), 3.0);
                assert!(reader.settings().unwrap().contains("cpu"));
                // The message of an error is that of its thread.
                assert_eq!(tensor.item().unwrap_err().code(), ErrorCode::ShapeMismatch);
            });
        }
    });
    let model = nn::linear(2, 1, Bias::With).unwrap();
    let output = thread::spawn(move || {
        let output = model.forward(&tensor).unwrap();
        state.end_training().unwrap();
        output
    });
    assert_eq!(output.join().unwrap().numel(), 1);
    assert_eq!(reader.process_index(), 0);
    let (major, minor, _) = version().unwrap();
    assert_eq!((major, minor), (0, 1));
    assert!(is_available("ucx") && !is_available("tea") && build_info().unwrap().contains("libtorch"));
}

fn a_forked_process_gets_an_error() {
    let tensor = Tensor::scalar(1.0f32).unwrap();
    let child = unsafe { fork() };
    if child == 0 {
        let errors = [
            tensor.add(&tensor).err(),
            tensor.with_slice(<[f32]>::len).err(),
            State::from_environment().err(),
            nn::linear(1, 1, Bias::With).err(),
            Value::string("text").err(),
        ];
        let told = errors.iter().flatten().filter(|error| {
            error.code() == ErrorCode::InvalidState && error.message().contains("fork") && error.message().len() > 20
        });
        let told = told.count() == errors.len();
        unsafe { _exit(c_int::from(!told)) };
    }
    let mut status = -1;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child did not get the error");
}
