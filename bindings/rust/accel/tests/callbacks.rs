// SPDX-License-Identifier: Apache-2.0
//! Closures as callbacks: what they answer, and what becomes of panics.
mod ranks;

use accel::{
    nn, Bias, DType, Device, Error, ErrorCode, Model, Module, Optimizer, PrepareModelOptions, Reduction, Result,
    Sampler, Scheduler, SgdOptions, Tensor, Value, When,
};
use std::cell::RefCell;
use std::error::Error as _;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, PartialEq)]
struct Own(i32);

impl fmt::Display for Own {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "own failure {}", self.0)
    }
}

impl std::error::Error for Own {}

fn one() -> Tensor {
    Tensor::full(&[1, 1], 1.0, DType::Float32, Device::Cpu).unwrap()
}

fn model_of(forward: impl Fn(&Model, &[Value]) -> accel::CallbackResult<Value> + Send + 'static) -> Model {
    let model = Model::container("Test").unwrap();
    model.set_forward(forward).unwrap();
    model
}

#[test]
fn an_error_of_a_callback_is_the_source_of_the_outer_one() {
    let model = model_of(|_, _| Err(Own(7).into()));
    let error = model.forward(&one()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::User);
    assert!(error.message().contains("own failure 7"), "{error:?}");
    assert_eq!(error.source().unwrap().downcast_ref::<Own>(), Some(&Own(7)));
}

#[test]
fn an_error_of_the_library_keeps_its_code_through_a_callback() {
    let model = model_of(|_, inputs| Ok(inputs[0].as_tensor().unwrap().matmul(&Tensor::scalar(1.0f32)?)?.into()));
    assert_eq!(model.forward(&one()).unwrap_err().code(), ErrorCode::Torch);
    let model = model_of(|_, _| Err(Error::new(ErrorCode::Corrupt, "worn out").into()));
    let error = model.forward(&one()).unwrap_err();
    assert_eq!((error.code(), error.message()), (ErrorCode::Corrupt, "worn out"));
}

#[test]
fn a_panic_goes_on_in_the_outer_call() {
    let model = model_of(|_, _| std::panic::panic_any(Own(3)));
    let payload = catch_unwind(AssertUnwindSafe(|| model.forward(&one()))).unwrap_err();
    assert_eq!(payload.downcast_ref::<Own>(), Some(&Own(3)));
    // Through two layers of callbacks.
    let outer = model_of(move |_, inputs| Ok(model.call(&[(&inputs[0]).into()])?));
    let payload = catch_unwind(AssertUnwindSafe(|| outer.forward(&one()))).unwrap_err();
    assert_eq!(payload.downcast_ref::<Own>(), Some(&Own(3)));
    // Nothing of it is left.
    assert_eq!(one().matmul(&Tensor::scalar(1.0f32).unwrap()).unwrap_err().code(), ErrorCode::Torch);
}

#[test]
fn a_schedule_that_panics_ends_the_step() {
    let optimizer = Optimizer::sgd(&nn::linear(1, 1, Bias::With).unwrap(), SgdOptions::new().lr(1.0)).unwrap();
    let scheduler = Scheduler::lambda(&optimizer, |step| {
        assert!(step < 2, "no further than 2");
        Ok(1.0 / (1.0 + step as f64))
    })
    .unwrap();
    scheduler.step().unwrap();
    let payload = catch_unwind(AssertUnwindSafe(|| scheduler.step())).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"no further than 2"));
    let payload = catch_unwind(AssertUnwindSafe(|| scheduler.curve(3))).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"no further than 2"));
    let refused = Scheduler::lambda(&optimizer, |_| Err(Own(1).into())).err().unwrap();
    assert_eq!(refused.source().unwrap().downcast_ref::<Own>(), Some(&Own(1)));
    assert_eq!(scheduler.last_lr(0).unwrap(), 0.5);
}

#[test]
fn a_callback_that_calls_itself_gets_an_error() {
    thread_local! {
        static SAMPLER: RefCell<Option<Rc<Sampler>>> = const { RefCell::new(None) };
    }
    let own = || SAMPLER.with(|sampler| sampler.borrow().clone()).unwrap();
    let sampler = Sampler::custom(1, move |epoch, _| Ok(own().indices(epoch).map(drop)?)).unwrap();
    SAMPLER.with(|place| *place.borrow_mut() = Some(Rc::new(sampler)));
    let error = own().indices(0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::User);
    assert!(error.message().contains("running already"), "{error:?}");
}

#[test]
fn closures_are_dropped_with_their_object() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = Counted(Arc::clone(&dropped));
    let model = model_of(move |_, inputs| {
        let _ = &counted;
        Ok(inputs[0].try_clone()?)
    });
    model.forward(&one()).unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(model);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    // Also when the registration fails.
    let counted = Counted(Arc::clone(&dropped));
    let layer = nn::linear(1, 1, Bias::With).unwrap();
    let refused = layer.set_forward(move |_, inputs| {
        let _ = &counted;
        Ok(inputs[0].try_clone()?)
    });
    assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidState);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

struct Scale;

impl Module for Scale {
    fn parameters(&self) -> Result<Vec<(&str, Tensor)>> {
        Ok(vec![("scale", Tensor::full(&[1], 2.0, DType::Float32, Device::Cpu)?)])
    }

    fn forward(&self, node: &Model, input: &Tensor) -> Result<Tensor> {
        input * &node.tensor("scale")?
    }
}

struct Twice {
    scale: Model,
}

impl Module for Twice {
    fn children(&self) -> Vec<(&str, &Model)> {
        vec![("scale", &self.scale)]
    }

    fn forward(&self, _node: &Model, input: &Tensor) -> Result<Tensor> {
        self.scale.forward(&self.scale.forward(input)?)
    }
}

#[test]
fn modules_are_composed() {
    let model = Model::new(Twice { scale: Model::new(Scale).unwrap() }).unwrap();
    assert_eq!(model.forward(&one()).unwrap().item().unwrap(), 4.0);
    let kinds = model.named_modules().unwrap();
    assert_eq!(kinds, [("".to_string(), "Twice".to_string()), ("scale".into(), "Scale".into())]);
    model
        .add_hook(When::AfterForward, |_, outputs| Ok(Some(Value::list([outputs.tensor_at(0)?.mul_scalar(10)?])?)))
        .unwrap();
    model.add_hook(When::BeforeForward, |_, _| Ok(None)).unwrap();
    assert_eq!(model.forward(&one()).unwrap().item().unwrap(), 40.0);
    let mut output = model.forward(&one()).unwrap();
    output.backward().unwrap();
    assert_eq!(model.tensor("scale.scale").unwrap().grad().unwrap().unwrap().item().unwrap(), 40.0);
    assert_eq!(model.call(&[1.into()]).unwrap_err().code(), ErrorCode::TypeMismatch);
    let gradient = |model: &Model| model.tensor("scale.scale").unwrap().grad().unwrap().unwrap().item().unwrap();
    let once = gradient(&model);
    let id = model
        .add_hook(When::BeforeBackward, |_, gradients| {
            Ok(Some(Value::list([gradients.tensor_at(0)?.mul_scalar(2)?])?))
        })
        .unwrap();
    let mut output = model.forward(&one()).unwrap();
    output.backward().unwrap();
    assert_eq!(gradient(&model), once + 80.0);
    model.remove_hook(id).unwrap();
    let names = model.set_input_names("x");
    assert!(names.is_ok() && model.call_kw(&[], None).is_err());
}

#[test]
fn the_program_may_exchange_gradients_itself() {
    let gradients = ranks::run(2, |state| {
        let plain = nn::linear(1, 1, Bias::Without).unwrap();
        let model = state.prepare_model(&plain, PrepareModelOptions::new()).unwrap();
        state
            .register_comm_hook(
                &model,
                |state, buffer, _bucket, _is_last| Ok(state.all_reduce(buffer, Reduction::Sum)?),
            )
            .unwrap();
        let input = one().mul_scalar(1 + state.process_index()).unwrap();
        let mut loss = model.forward(&input).unwrap().sum().unwrap();
        state.backward(&mut loss).unwrap();
        plain.tensor("weight").unwrap().grad().unwrap().unwrap().item().unwrap()
    });
    assert_eq!(gradients, [3.0, 3.0]);
    let messages = ranks::run(2, |state| {
        let model = state.prepare_model(&nn::linear(1, 1, Bias::Without).unwrap(), PrepareModelOptions::new()).unwrap();
        state.register_comm_hook(&model, |_, _, _, _| panic!("no exchange today")).unwrap();
        let mut loss = model.forward(&one()).unwrap().sum().unwrap();
        // Carried back on the thread of the backward; else an error with the message.
        match catch_unwind(AssertUnwindSafe(|| state.backward(&mut loss))) {
            Ok(result) => result.unwrap_err().to_string(),
            Err(payload) => payload.downcast_ref::<&str>().unwrap().to_string(),
        }
    });
    assert!(messages.iter().all(|message| message.contains("no exchange today")), "{messages:?}");
}

#[test]
fn an_update_of_the_program_is_an_optimizer() {
    let trained = |make: fn(&Model) -> Result<Optimizer>| {
        let model = nn::linear(2, 1, Bias::Without).unwrap();
        let start = Tensor::from_slice(&[0.5f32, -0.25], &[1, 2]).unwrap();
        model.tensor("weight").unwrap().detach().unwrap().copy_from(&start).unwrap();
        let optimizer = make(&model).unwrap();
        for _ in 0..3 {
            let mut loss = model
                .forward(&Tensor::full(&[4, 2], 0.5, DType::Float32, Device::Cpu).unwrap())
                .unwrap()
                .square()
                .unwrap()
                .mean()
                .unwrap();
            loss.backward().unwrap();
            optimizer.step().unwrap();
            optimizer.zero_grad().unwrap();
        }
        model.tensor("weight").unwrap().to_vec::<f32>().unwrap()
    };
    let own = trained(|model| {
        Optimizer::custom(model, &["momentum"], 0.1, 0.0, |update| {
            let mut momentum = update.state("momentum")?;
            momentum.mul_scalar_(0.9)?;
            momentum.add_(update.gradient, 1)?;
            update.parameter.sub_(&momentum, update.lr)?;
            Ok(())
        })
    });
    let known = trained(|model| Optimizer::sgd(model, SgdOptions::new().lr(0.1).momentum(0.9)));
    for (one, other) in own.iter().zip(&known) {
        assert!((one - other).abs() < 1e-6, "{own:?} {known:?}");
    }
}

#[test]
fn what_a_callback_may_change_it_may_also_keep() {
    let model = nn::linear(1, 1, Bias::Without).unwrap();
    let weight = model.tensor("weight").unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keeps = Arc::clone(&kept);
    let optimizer = Optimizer::custom(&model, &[], 0.1, 0.0, move |update| {
        let parameter = std::mem::replace(update.parameter, one());
        std::mem::swap(update.gradient, update.parameter);
        keeps.lock().unwrap().push(parameter);
        Ok(())
    })
    .unwrap();
    let mut loss = model.forward(&one()).unwrap().sum().unwrap();
    loss.backward().unwrap();
    optimizer.step().unwrap();
    drop((loss, optimizer, model));
    let kept = kept.lock().unwrap().pop().unwrap();
    assert_eq!(kept.data_ptr().unwrap(), weight.data_ptr().unwrap());
    drop(weight);
    assert_eq!(kept.numel(), 1);
}

#[test]
fn an_error_that_cannot_be_shown_panics_in_the_outer_call() {
    #[derive(Debug)]
    struct Unspeakable;
    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("no words")
        }
    }
    impl std::error::Error for Unspeakable {}
    let model = model_of(|_, _| Err(Unspeakable.into()));
    let payload = catch_unwind(AssertUnwindSafe(|| model.forward(&one()))).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"no words"));
}
