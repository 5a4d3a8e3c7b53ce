// SPDX-License-Identifier: Apache-2.0
//! Structures of tensors in collectives and batches.
use accel::prelude::*;
use std::collections::{BTreeMap, HashMap};

mod ranks;

#[derive(Tree, Debug)]
struct Scores {
    loss: Tensor,
    #[allow(dead_code)]
    pub(crate) details: (Tensor, Vec<Tensor>),
    r#type: Option<Pair>,
}

#[derive(Tree, Debug)]
struct Pair(Tensor, pub Tensor);

fn scalar(number: f32) -> Tensor {
    Tensor::scalar(number).unwrap()
}

#[test]
fn structs_and_tuples_are_gathered_by_their_fields() {
    ranks::run(2, |state| {
        let rank = state.process_index() as f32;
        let scores = Scores {
            loss: scalar(rank),
            details: (scalar(10.0 + rank), vec![scalar(20.0), scalar(30.0 + rank)]),
            r#type: Some(Pair(scalar(1.0), scalar(rank))),
        };
        let all = state.gather(&scores).unwrap();
        assert_eq!(all.loss.to_vec::<f32>().unwrap(), [0.0, 1.0]);
        assert_eq!(all.details.0.to_vec::<f32>().unwrap(), [10.0, 11.0]);
        assert_eq!(all.details.1[1].to_vec::<f32>().unwrap(), [30.0, 31.0]);
        assert_eq!(all.r#type.unwrap().1.to_vec::<f32>().unwrap(), [0.0, 1.0]);

        // In place, and in the background.
        let mut pair = (scalar(rank), scalar(rank + 5.0));
        state.broadcast(&mut pair, 1).unwrap();
        assert_eq!((pair.0.item().unwrap(), pair.1.item().unwrap()), (1.0, 6.0));
        let work = state.reduce_async((scalar(rank), scalar(2.0)), Reduction::Sum, 1.0).unwrap();
        let (sum, four) = work.wait().unwrap();
        assert_eq!((sum.item().unwrap(), four.item().unwrap()), (1.0, 4.0));
    });
}

#[test]
fn maps_and_arrays_are_trees() {
    ranks::run(2, |state| {
        let rank = state.process_index() as f32;
        let by_name = BTreeMap::from([("a".to_string(), scalar(rank)), ("b".to_string(), scalar(1.0))]);
        let all = state.gather(&by_name).unwrap();
        assert_eq!(all.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all["a"].to_vec::<f32>().unwrap(), [0.0, 1.0]);
        let [first, second] = state.reduce(&[scalar(rank), scalar(2.0)], Reduction::Sum, 1.0).unwrap();
        assert_eq!((first.item().unwrap(), second.item().unwrap()), (1.0, 4.0));
    });
    let value = Value::from_json(r#"{"sizes": [1, 2], "rates": [0.5]}"#).unwrap();
    let lists: HashMap<String, Vec<f64>> = value.try_clone().unwrap().into_tree().unwrap();
    assert_eq!(lists["sizes"], [1.0, 2.0]);
    let (sizes, [rate]): (Vec<usize>, [f32; 1]) = Value::from_json("[[3], [0.25]]").unwrap().into_tree().unwrap();
    assert_eq!((sizes, rate), (vec![3], 0.25));
    let error = Value::from_json("[1, 2]").unwrap().into_tree::<[i32; 3]>().unwrap_err();
    assert!(error.message().contains("expected a list or tuple of 3"), "{error:?}");
    assert!(Value::from(-1).into_tree::<usize>().is_err() && Value::from(1i64 << 40).into_tree::<i32>().is_err());
}

#[test]
fn batches_become_structs() {
    #[derive(Tree)]
    struct Row {
        score: f64,
        id: i64,
        name: String,
        is_new: bool,
    }
    let row = Value::from_json(r#"{"id": 3, "score": 0.5, "name": "a", "is_new": true, "more": null}"#).unwrap();
    let Row { score, id, name, is_new } = row.try_clone().unwrap().into_tree().unwrap();
    assert_eq!((score, id, name.as_str(), is_new), (0.5, 3, "a", true));
    // By place where there are no names.
    let listed = Value::from_json(r#"[0.25, 4, "b", false]"#).unwrap();
    assert_eq!(listed.into_tree::<Row>().unwrap().id, 4);

    let refused = |json: &str| Value::from_json(json).unwrap().into_tree::<Row>().err().unwrap();
    let error = refused(r#"{"id": 3}"#);
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert_eq!(error.message(), r#"field score of Row: not among the keys ["id"]"#);
    let error = refused(r#"{"score": "high"}"#);
    assert_eq!(error.code(), ErrorCode::TypeMismatch);
    assert!(error.message().starts_with("field score of Row: "), "{error:?}");
    assert_eq!(refused("[1, 2]").code(), ErrorCode::TypeMismatch);
    assert_eq!(refused("7").code(), ErrorCode::TypeMismatch);
    assert!(row.into_tree::<(f64, i64)>().is_err());
}
