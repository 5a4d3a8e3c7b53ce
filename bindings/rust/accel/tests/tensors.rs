// SPDX-License-Identifier: Apache-2.0
//! Tensors, their memory, and calls with wrong arguments.
use accel::{
    ops, DType, Device, DlPack, DlPackUnversioned, ErrorCode, KeepDim, Op, OtherLeaves, Scalar, Tensor, Value,
};

#[test]
fn memory_of_vectors_is_not_copied() {
    let elements = vec![1.0f32, 2.0, 3.0, 4.0];
    let memory = elements.as_ptr();
    let mut tensor = Tensor::from_vec(elements, &[2, 2]).unwrap();
    assert_eq!(tensor.data_ptr().unwrap() as *const f32, memory);
    assert_eq!(tensor.with_slice(|elements: &[f32]| elements.as_ptr()).unwrap(), memory);
    tensor.with_slice_mut(|elements: &mut [f32]| elements[3] = 8.0).unwrap();
    let view = tensor.reshape(&[4]).unwrap();
    assert_eq!(view.data_ptr().unwrap() as *const f32, memory);
    drop(tensor);
    assert_eq!(view.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 8.0]);
}

#[test]
fn dlpack_hands_memory_over_in_both_versions() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0], &[2]).unwrap();
    let memory = tensor.data_ptr().unwrap();
    let lent = DlPackUnversioned::try_from(&tensor).unwrap();
    let back = Tensor::try_from(lent).unwrap();
    assert_eq!((back.data_ptr().unwrap(), back.to_vec::<f32>().unwrap()), (memory, vec![1.0, 2.0]));
    drop(DlPackUnversioned::try_from(&back).unwrap());
    drop(DlPack::try_from(&back).unwrap());
    let mut trained = tensor.deep_clone().unwrap();
    trained.set_requires_grad(true).unwrap();
    assert!(trained.to_dlpack().is_err() && DlPackUnversioned::try_from(&trained).is_err());
}

#[test]
fn slices_are_copied_and_all_element_types_pass() {
    fn pass<T: accel::Element + PartialEq + std::fmt::Debug>(elements: [T; 2], dtype: DType) {
        let tensor = Tensor::from_slice(&elements, &[1, 2]).unwrap();
        assert_eq!(tensor.dtype(), dtype);
        assert_eq!(tensor.nbytes().unwrap(), 2 * dtype.size());
        assert_ne!(tensor.data_ptr().unwrap() as *const T, elements.as_ptr());
        assert_eq!(tensor.to_vec::<T>().unwrap(), elements);
    }
    pass([1u8, 255], DType::UInt8);
    pass([-1i8, 127], DType::Int8);
    pass([-1i16, 2], DType::Int16);
    pass([-1i32, 2], DType::Int32);
    pass([-1i64, i64::MAX], DType::Int64);
    pass([1u16, 2], DType::UInt16);
    pass([1u32, 2], DType::UInt32);
    pass([1u64, 2], DType::UInt64);
    pass([0.5f32, 2.0], DType::Float32);
    pass([0.5f64, 2.0], DType::Float64);
    let empty = Tensor::from_slice::<f32>(&[], &[0, 3]).unwrap();
    assert_eq!(empty.with_slice::<f32, _>(<[f32]>::len).unwrap(), 0);
}

#[test]
fn wrong_calls_say_what_was_expected() {
    let tensor = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let cases = [
        (Tensor::from_slice(&[1.0f32; 3], &[2, 2]).unwrap_err(), ErrorCode::ShapeMismatch, "3 elements"),
        (Tensor::from_vec(vec![1u8; 3], &[-3]).unwrap_err(), ErrorCode::ShapeMismatch, "[-3]"),
        (Tensor::from_slice(&[1u8; 3], &[i64::MAX, 4]).unwrap_err(), ErrorCode::ShapeMismatch, "3 elements"),
        (tensor.with_slice(<[f64]>::len).unwrap_err(), ErrorCode::TypeMismatch, "float64"),
        (tensor.t().unwrap().with_slice(<[f32]>::len).unwrap_err(), ErrorCode::InvalidState, "contiguous()"),
        (tensor.item().unwrap_err(), ErrorCode::ShapeMismatch, "4"),
        (
            tensor.matmul(&Tensor::zeros(&[3, 2], DType::Float32, Device::Cpu).unwrap()).unwrap_err(),
            ErrorCode::Torch,
            "3x2",
        ),
        (tensor.to_device(Device::Meta).unwrap().with_slice(<[f32]>::len).unwrap_err(), ErrorCode::InvalidState, "CPU"),
        (Op::find("aten::no_such", "").unwrap_err(), ErrorCode::NotFound, "no_such"),
        (Op::find("aten::a\0dd", "").unwrap_err(), ErrorCode::InvalidArgument, "NUL"),
        (Value::from(3).into_tensor().unwrap_err(), ErrorCode::TypeMismatch, "3"),
        ("float33".parse::<DType>().unwrap_err(), ErrorCode::NotFound, "float33"),
        ("gpu".parse::<Device>().unwrap_err(), ErrorCode::InvalidArgument, "gpu"),
    ];
    for (error, code, text) in cases {
        assert_eq!(error.code(), code, "{error:?}");
        assert!(error.message().contains(text), "{error:?}: expected {text:?} in it");
    }
    let error = tensor.item().unwrap_err();
    assert_eq!(error.function(), "accel_tensor_item");
    assert!(error.to_string().starts_with("ACCEL_ERROR_SHAPE_MISMATCH: "), "{error}");
}

#[test]
fn gradients_follow_through_operators() {
    let mut x = Tensor::from_slice(&[3.0f64], &[]).unwrap();
    x.set_requires_grad(true).unwrap();
    let mut y = ((&x * &x).unwrap() + 1.0).unwrap();
    y.backward().unwrap();
    assert_eq!(x.grad().unwrap().unwrap().item().unwrap(), 6.0);
    assert!(y.grad().unwrap().is_none());
    let error = Tensor::from_slice(&[1i64], &[1]).unwrap().set_requires_grad(true).unwrap_err();
    assert!(error.message().contains("int64"), "{error:?}");
    assert_eq!((-&x).unwrap().item().unwrap(), -3.0);
    assert_eq!(((x.detach().unwrap() / 2.0).unwrap() - &y).unwrap().item().unwrap(), -8.5);
}

#[test]
fn every_form_of_a_typed_operator_works() {
    let tensor = Tensor::from_slice(&[1.0f32, 4.0, 2.0, 3.0], &[2, 2]).unwrap();
    assert_eq!(tensor.sum_dim(Some(&[1]), KeepDim::Yes).unwrap().shape(), [2, 1]);
    assert_eq!(tensor.mean_dim(None, KeepDim::No).unwrap().item().unwrap(), 2.5);
    assert_eq!(tensor.clamp(Some(Scalar::Double(1.5)), None).unwrap().to_vec::<f32>().unwrap(), [1.5, 4.0, 2.0, 3.0]);
    assert_eq!(tensor.argmax(Some(1), KeepDim::No).unwrap().to_vec::<i64>().unwrap(), [1, 1]);
    let [values, indices] = tensor.topk(1, 1).unwrap();
    assert_eq!((values.to_vec::<f32>().unwrap(), indices.to_vec::<i64>().unwrap()), (vec![4.0, 3.0], vec![1, 1]));
    assert_eq!(tensor.chunk(2, 0).unwrap().len(), 2);
    assert!(tensor.allclose(&tensor.add_scalar(1e-9).unwrap(), 1e-5, 1e-8).unwrap());
    assert_eq!(tensor.gelu("tanh").unwrap().shape(), [2, 2]);
    assert_eq!(ops::cat(&[&tensor, &tensor], 1).unwrap().shape(), [2, 4]);
    assert_eq!(ops::arange(1, 4, Some(DType::Float32)).unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    assert_eq!(tensor.linear(&tensor, None).unwrap().to_vec::<f32>().unwrap(), [17.0, 14.0, 14.0, 13.0]);
    assert_eq!(ops::einsum("ij->j", &[&tensor]).unwrap().to_vec::<f32>().unwrap(), [3.0, 7.0]);
    assert_eq!(ops::linspace(0, 1.0, 3, None).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.5, 1.0]);
    assert_eq!(tensor.norm_dim(Some(1.into()), &[0], KeepDim::No).unwrap().to_vec::<f32>().unwrap(), [3.0, 7.0]);
    assert_eq!(tensor.le_scalar(2).unwrap().nonzero().unwrap().to_vec::<i64>().unwrap(), [0, 0, 1, 0]);
    assert_eq!(tensor.full_like(7, Some(DType::Int64)).unwrap().to_vec::<i64>().unwrap(), [7; 4]);
    let mut changed = tensor.deep_clone().unwrap();
    changed.mul_scalar_(2).unwrap();
    changed.add_(&tensor, -1).unwrap();
    assert!(changed.equal(&tensor).unwrap());
    assert_eq!(tensor.slice(1, Some(1), None, 1).unwrap().to_vec::<f32>().unwrap(), [4.0, 3.0]);
    assert!(Op::find("aten::relu", "").unwrap().schema().starts_with("aten::relu(Tensor self)"));
    assert!(Op::list("aten::relu").unwrap().contains(&"aten::relu_".to_string()));
    let named = Op::find("aten::sum", "dim_IntList").unwrap();
    let dims = Value::list([0i64]).unwrap();
    let sums = named.call_with(&[(&tensor).into()], &[("dim", (&dims).into()), ("keepdim", true.into())]).unwrap();
    assert_eq!(sums[0].as_tensor().unwrap().to_vec::<f32>().unwrap(), [3.0, 7.0]);
}

#[test]
fn an_operator_that_changes_a_tensor_needs_it_for_itself() {
    let mut tensor = Tensor::from_slice(&[1.0f32, 2.0], &[2]).unwrap();
    let in_place = Op::find("aten::add_", "Scalar").unwrap();
    let error = in_place.call1(&[(&tensor).into(), 1.into()]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("call_in_place()"), "{error:?}");
    in_place.call_in_place(&mut tensor, &[1.into()]).unwrap();
    assert_eq!(tensor.to_vec::<f32>().unwrap(), [2.0, 3.0]);
    assert_eq!(in_place.call(&[(&tensor).into(), 1.into()]).unwrap_err().code(), ErrorCode::InvalidArgument);
    let pure = Op::find("aten::relu", "").unwrap();
    assert_eq!(pure.call_in_place(&mut tensor, &[]).unwrap_err().code(), ErrorCode::InvalidArgument);
    let out = Op::find("aten::add", "out").unwrap();
    assert!(out.call(&[]).unwrap_err().message().contains("other arguments"));
}

#[test]
fn values_hold_everything() {
    let mut map = Value::map([("flag", Value::from(true)), ("rate", 0.5.into())]).unwrap();
    map.set("name", &Value::string("n").unwrap()).unwrap();
    map.set("tensor", &Tensor::from_slice(&[1i64, 2], &[2]).unwrap().into()).unwrap();
    map.set("list", &Value::list([1i64, 2]).unwrap()).unwrap();
    map.set("dtype", &DType::BFloat16.into()).unwrap();
    assert_eq!(
        map.entries().map(|(key, _)| key).collect::<Vec<_>>(),
        ["flag", "rate", "name", "tensor", "list", "dtype"]
    );
    assert_eq!(map.get("flag").unwrap().as_bool(), Some(true));
    assert_eq!(map.get("name").unwrap().as_str(), Some("n"));
    assert_eq!(map.get("dtype").unwrap().as_dtype(), Some(DType::BFloat16));
    assert!(map.get("none").is_none() && map.at(99).is_none() && map.key(99).is_none());
    assert!(map.equals(&map.try_clone().unwrap()).unwrap());
    let error = map.get("list").unwrap().tensor_at(0).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TypeMismatch);
    let doubled = map.map_tensors(OtherLeaves::Keep, |tensor| Ok(tensor.mul_scalar(2)?)).unwrap();
    assert_eq!(doubled.get("tensor").unwrap().to_json().unwrap(), "[2,4]");
    assert_eq!(doubled.get("tensor").unwrap().batch_size().unwrap(), 2);
    assert_eq!(Value::from_json("{\"a\": [1, 2.5]}").unwrap().get("a").unwrap().at(1).unwrap().as_f64(), Some(2.5));
    assert_eq!(Value::from_json("{").unwrap_err().code(), ErrorCode::InvalidArgument);
}

#[test]
fn devices_have_names() {
    for name in ["cpu", "cuda:1", "cuda", "xpu:2", "meta"] {
        assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
    }
    assert_eq!(Device::Cpu.count(), 1);
    assert_eq!(accel::device_current(accel_sys::ACCEL_DEVICE_CPU).unwrap(), Device::Cpu);
    let error = "npu".parse::<Device>().unwrap_err().to_string();
    assert!(error.contains("the plugin of npu is not loaded"), "{error}");
}
