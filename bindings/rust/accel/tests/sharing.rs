// SPDX-License-Identifier: Apache-2.0
//! How ranks share data: shards of streams, and what each setting of a prepared loader does.
mod ranks;

use accel::*;
use std::collections::BTreeSet;

fn numbers(count: i64) -> Dataset {
    Dataset::tensors(&[&ops::arange(0, count, Some(DType::Int64)).unwrap()]).unwrap()
}

fn ids(batch: Result<Value>) -> Vec<i64> {
    batch.unwrap().tensor_at(0).unwrap().to_vec::<i64>().unwrap()
}

/// The order of an epoch on one rank with these settings.
fn order(state: &State, options: DataLoaderOptions, config: DataLoaderConfig) -> Vec<i64> {
    let plain = DataLoader::new(&numbers(32), options.batch_size(4)).unwrap();
    state.prepare_data_loader(&plain, config).unwrap().flat_map(ids).collect()
}

fn alone() -> State {
    StateOptions::new().cpu(true).build().unwrap()
}

/// Four shards of three items: 10 * shard + item. A reader of several has one after the other.
fn sharded() -> Dataset {
    Dataset::stream(Some(12), 4, |_epoch, shard, readers| {
        let shards = (shard..4).step_by(readers as usize);
        Ok(shards.flat_map(|shard| (0..3).map(move |item| Ok(Value::from(10 * shard + item)))))
    })
    .unwrap()
}

#[test]
fn every_rank_reads_shards_of_its_own() {
    let seen = ranks::run(2, |state| {
        let plain = DataLoader::new(&sharded(), DataLoaderOptions::new().batch_size(3)).unwrap();
        let mut loader = state.prepare_data_loader(&plain, DataLoaderConfig::new()).unwrap();
        let mut own = Vec::new();
        while let Some(batch) = loader.next() {
            let rows = batch.unwrap().as_tensor().unwrap().to_vec::<i64>().unwrap();
            own.extend_from_slice(&rows[..loader.valid_rows() as usize]);
        }
        own
    });
    assert!(seen[0].iter().all(|item| item / 10 % 2 == 0) && seen[1].iter().all(|item| item / 10 % 2 == 1), "{seen:?}");
    let all: BTreeSet<i64> = seen.concat().into_iter().collect();
    assert_eq!((all.len(), seen[0].len(), seen[1].len()), (12, 6, 6));
}

#[test]
fn workers_read_shards_of_their_own() {
    for workers in [0, 1, 2, 4] {
        let options = DataLoaderOptions::new().batch_size(2).num_workers(workers);
        let mut loader = DataLoader::new(&sharded(), options).unwrap();
        let epoch = |loader: &mut DataLoader| -> Vec<i64> {
            loader.flat_map(|batch| batch.unwrap().as_tensor().unwrap().to_vec::<i64>().unwrap()).collect()
        };
        let (first, second) = (epoch(&mut loader), epoch(&mut loader));
        assert_eq!(
            (first.len(), first.iter().collect::<BTreeSet<_>>().len()),
            (12, 12),
            "{workers} workers: {first:?}"
        );
        assert_eq!(first, second, "{workers} workers");
    }
}

#[test]
fn data_seed_takes_the_place_of_the_loaders_seed() {
    let state = alone();
    let shuffled = DataLoaderOptions::new().shuffle(true);
    let of_seed = |seed: i64| order(&state, shuffled.seed(seed), DataLoaderConfig::new());
    assert_ne!(of_seed(1), of_seed(2));
    assert_eq!(order(&state, shuffled.seed(1), DataLoaderConfig::new().data_seed(2)), of_seed(2));
    state.end_training().unwrap();
}

#[test]
fn the_order_of_a_loader_without_a_seed_follows_from_set_seed() {
    let state = alone();
    let shuffled = DataLoaderOptions::new().shuffle(true);
    let after = |seed: i64, seedable: bool| {
        state.set_seed(seed, DeviceSpecific::No, Deterministic::No).unwrap();
        order(&state, shuffled, DataLoaderConfig::new().use_seedable_sampler(seedable))
    };
    for seedable in [true, false] {
        assert_ne!(after(1, seedable), after(2, seedable));
        assert_eq!(after(1, seedable), after(1, seedable));
    }
    state.end_training().unwrap();
}

#[test]
fn without_the_stateful_loader_a_checkpoint_leaves_it_where_it_is() {
    let folder = std::env::temp_dir().join(format!("accel-rust-stateful-{}", std::process::id()));
    for (stateful, next) in [(true, [4, 5, 6, 7]), (false, [0, 1, 2, 3])] {
        let state = alone();
        let begin = || {
            let plain = DataLoader::new(&numbers(16), DataLoaderOptions::new().batch_size(4)).unwrap();
            let config = DataLoaderConfig::new().use_stateful_dataloader(stateful);
            state.prepare_data_loader(&plain, config).unwrap()
        };
        let mut first = begin();
        first.next().unwrap().unwrap();
        state.save_state(folder.as_path(), None).unwrap();
        drop(first);
        state.free_memory().unwrap();
        let mut second = begin();
        state.load_state(folder.as_path(), None).unwrap();
        assert_eq!(second.next().map(ids).unwrap(), next, "stateful: {stateful}");
        drop(second);
        state.end_training().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn batches_are_even_or_split_as_the_settings_say() {
    let rows = |config: DataLoaderConfig| {
        ranks::run(2, |state| {
            let plain = DataLoader::new(&numbers(6), DataLoaderOptions::new().batch_size(4)).unwrap();
            let loader = state.prepare_data_loader(&plain, config.clone()).unwrap();
            loader.map(ids).collect::<Vec<_>>()
        })
    };
    assert_eq!(rows(DataLoaderConfig::new()), [[[0, 1, 2, 3]], [[4, 5, 0, 1]]]);
    assert_eq!(rows(DataLoaderConfig::new().even_batches(false)), [[vec![0, 1, 2, 3]], [vec![4, 5]]]);
    let split = rows(DataLoaderConfig::new().split_batches(true));
    assert_eq!((&split[0][0], &split[1][0]), (&vec![0, 1], &vec![2, 3]));
}
