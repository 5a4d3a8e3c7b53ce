// SPDX-License-Identifier: Apache-2.0
//! What ranks do together.
mod ranks;

use accel::{ErrorCode, Reduction, Tensor, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn trees_are_gathered_and_reduced() {
    let all = ranks::run(2, |state| {
        let rank = i64::from(state.process_index());
        let mine = Tensor::from_slice(&[rank, 10 + rank], &[2]).unwrap();
        let tree = Value::map([("ids", Value::from(mine))]).unwrap();
        let gathered = state.gather(&tree).unwrap();
        let sum = state.reduce(&Tensor::scalar(rank as f32 + 1.0).unwrap(), Reduction::Sum, 0.5).unwrap();
        let texts = Value::list([Value::string(format!("rank {rank}")).unwrap()]).unwrap();
        let objects = state.gather_object(&texts).unwrap();
        state.wait_for_everyone().unwrap();
        let names: Vec<String> = objects.iter().map(|name| name.as_str().unwrap().to_string()).collect();
        (gathered.get("ids").unwrap().as_tensor().unwrap().to_vec::<i64>().unwrap(), sum.item().unwrap(), names)
    });
    for (ids, sum, names) in all {
        assert_eq!((ids, sum), (vec![0, 10, 1, 11], 1.5));
        assert_eq!(names, ["rank 0", "rank 1"]);
    }
}

#[test]
fn bare_tensors_are_exchanged_in_place() {
    ranks::run(2, |state| {
        let rank = state.process_index();
        let mut tensor = Tensor::from_vec(vec![rank as f32, 1.0], &[2]).unwrap();
        let memory = tensor.data_ptr().unwrap();
        state.all_reduce(&mut tensor, Reduction::Max).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.0, 1.0]);
        assert_eq!(tensor.data_ptr().unwrap(), memory);

        let mut parts = Tensor::from_slice(&[0i64; 2], &[2]).unwrap();
        state.all_gather(&Tensor::from_slice(&[i64::from(rank)], &[1]).unwrap(), &mut parts).unwrap();
        assert_eq!(parts.to_vec::<i64>().unwrap(), [0, 1]);

        let mut swapped = Tensor::from_slice(&[-1i64; 2], &[2]).unwrap();
        let mine = Tensor::from_slice(&[10 * i64::from(rank), 10 * i64::from(rank) + 1], &[2]).unwrap();
        state.all_to_all(&mine, &mut swapped).unwrap();
        assert_eq!(swapped.to_vec::<i64>().unwrap(), [i64::from(rank), 10 + i64::from(rank)]);

        let mut got = Tensor::from_slice(&[0.0f64], &[1]).unwrap();
        if rank == 0 {
            state.send(&Tensor::from_slice(&[0.5f64], &[1]).unwrap(), 1, 7).unwrap();
        } else {
            state.recv(&mut got, 0, 7).unwrap();
            assert_eq!(got.item().unwrap(), 0.5);
        }
        let list = Value::list([Value::from(i64::from(rank))]).unwrap();
        assert_eq!(state.broadcast_object_list(&list, 1).unwrap().to_json().unwrap(), "[1]");
        state.end_training().unwrap();
    });
}

#[test]
fn works_own_their_tensors_and_give_them_back() {
    ranks::run(2, |state| {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let tensor = Tensor::from_slice(&[1.0f32 + state.process_index() as f32], &[1]).unwrap();
        let memory = tensor.data_ptr().unwrap();
        let work = state.all_reduce_async(tensor, Reduction::Sum).unwrap();
        let record = Arc::clone(&heard);
        work.then(move |result| {
            record.lock().unwrap().push(result.is_ok());
            Ok(())
        })
        .unwrap();
        let sum = work.wait().unwrap();
        assert_eq!((sum.item().unwrap(), sum.data_ptr().unwrap()), (3.0, memory));
        assert_eq!(*heard.lock().unwrap(), [true]);

        let gathered = state.gather_async(Value::list([sum]).unwrap()).unwrap().wait().unwrap();
        assert_eq!(gathered.tensor_at(0).unwrap().to_vec::<f32>().unwrap(), [3.0, 3.0]);
        state.wait_for_everyone_async().unwrap().wait().unwrap();
        while !state.progress(Duration::from_millis(1)).unwrap() {}
    });
}

#[test]
fn a_work_that_is_dropped_goes_on_and_one_that_fails_says_why() {
    ranks::run(2, |state| {
        let elements = vec![1.0f32; 100_000];
        drop(state.all_reduce_async(Tensor::from_vec(elements, &[100_000]).unwrap(), Reduction::Sum).unwrap());
        state.wait_for_everyone().unwrap();
        let rows = 1 + i64::from(state.process_index());
        let tensor = Tensor::full(&[rows], 1.0, accel::DType::Float32, accel::Device::Cpu).unwrap();
        let work = state.gather_async(tensor).unwrap();
        assert_eq!(work.wait().unwrap_err().code(), ErrorCode::CollectiveMismatch);
    });
}

#[test]
fn groups_are_states_of_their_own() {
    let sizes = ranks::run(3, |state| {
        let group = state.split_group(state.process_index() % 2, 0).unwrap();
        let sum =
            group.reduce(&Tensor::scalar(i64::from(state.process_index())).unwrap(), Reduction::Sum, 1.0).unwrap();
        (group.num_processes(), sum.item_int().unwrap())
    });
    assert_eq!(sizes, [(2, 2), (1, 1), (2, 2)]);
}

#[test]
fn ranks_that_disagree_get_an_error_that_says_so() {
    let errors = ranks::run(2, |state| {
        let rows = 1 + i64::from(state.process_index());
        let tensor = Tensor::full(&[rows], 1.0, accel::DType::Float32, accel::Device::Cpu).unwrap();
        let error = state.gather(&tensor).unwrap_err();
        // The group stays usable.
        state.wait_for_everyone().unwrap();
        error
    });
    for error in errors {
        assert_eq!(error.code(), ErrorCode::CollectiveMismatch, "{error:?}");
        assert_eq!(error.function(), "accel_gather");
        assert!(error.rank().is_some(), "{error:?}");
    }
}

#[test]
fn a_mesh_names_ranks() {
    let places = ranks::run(2, |state| {
        let mesh = accel::Mesh::new(&state, "replica,expert", &[2, 1]).unwrap();
        assert_eq!(mesh.size("expert").unwrap(), 1);
        assert_eq!(mesh.size("tensor").unwrap_err().code(), ErrorCode::NotFound);
        let group = mesh.group("replica").unwrap();
        assert_eq!(state.mesh().unwrap().size("replicate,shard").unwrap(), 2);
        (mesh.coordinate("replica").unwrap(), group.num_processes())
    });
    assert_eq!(places, [(0, 2), (1, 2)]);
}

#[test]
fn a_group_that_was_left_refuses_collectives() {
    ranks::run(2, |state| {
        state.destroy_process_group().unwrap();
        let error = state.gather(&Tensor::scalar(1.0f32).unwrap()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidState, "{error:?}");
    });
}
