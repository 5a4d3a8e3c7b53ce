// SPDX-License-Identifier: Apache-2.0
//! Datasets, streams and loaders: each function of theirs, with what it should give.
mod ranks;

use accel::*;
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::{env, fs, process};

/// A folder that is removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("accel_rust_{name}_{}", process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn int64(numbers: &[i64]) -> Tensor {
    Tensor::from_slice(numbers, &[numbers.len() as i64]).unwrap()
}

fn json(dataset: &Dataset, index: i64) -> String {
    dataset.item(index).unwrap().to_json().unwrap()
}

/// The rest of an epoch.
fn batches(loader: &mut DataLoader) -> Vec<String> {
    loader.map(|batch| batch.unwrap().to_json().unwrap()).collect()
}

fn loader(dataset: &Dataset, batch_size: i64) -> DataLoader {
    DataLoader::new(dataset, DataLoaderOptions::new().batch_size(batch_size)).unwrap()
}

fn stream_of(items: i64) -> Dataset {
    Dataset::stream(None, 1, move |_, _, _| Ok((0..items).map(|item| Ok(Value::from(item))))).unwrap()
}

#[test]
fn tensors_as_items() {
    let tokens = int64(&[1, 2, 9, 3, 9, 4, 5]);
    let named = Dataset::named_tensors(&Value::map([("x", tokens.detach().unwrap().into())]).unwrap()).unwrap();
    assert_eq!(json(&named, 2), r#"{"x":9}"#);
    let ragged = Dataset::ragged(&[&tokens], &int64(&[0, 2, 7])).unwrap();
    assert_eq!((ragged.len(), json(&ragged, 0)), (2, "[[1,2]]".to_string()));
    let windows = Dataset::windows(&tokens, 2, Some(1)).unwrap();
    assert_eq!((windows.len(), json(&windows, 1)), (5, "[[2,9],[9,3]]".to_string()));
    assert_eq!(Dataset::windows(&tokens, 3, None).unwrap().len(), 2);
    let both = Dataset::concatenate(&[&named, &named.subset(0..1).unwrap()]).unwrap();
    assert_eq!((both.len(), both.is_empty(), json(&both, 7)), (8, false, r#"{"x":1}"#.to_string()));
}

#[test]
fn documents_are_packed() {
    let tokens = int64(&[1, 2, 9, 3, 9]);
    let options = PackingOptions::new().sequence_length(4).packing(Packing::BestFit).pad_token(7);
    let packed = Dataset::packed(&tokens, None, options.end_of_document(9)).unwrap();
    assert_eq!(packed.len(), 2);
    assert_eq!(json(&packed, 0), "[[1,2,9,7],[2,9,-100,-100],[0,1,2,0],[0,0,0,-1]]");
    let by_offsets = Dataset::packed(&tokens, Some(&int64(&[0, 3, 5])), options).unwrap();
    assert_eq!(json(&by_offsets, 0), json(&packed, 0));
    assert_eq!(Dataset::packed(&tokens, None, options).err().unwrap().code(), ErrorCode::InvalidArgument);
}

#[test]
fn files_as_items() {
    let folder = Folder::new("files");
    let lines = Dataset::lines(folder.write("a.txt", b"one\n\xff\ntwo\n"), None, Malformed::Skip).unwrap();
    assert_eq!((lines.len(), lines.num_skipped(), json(&lines, 1)), (2, 1, r#""two""#.to_string()));
    folder.write("a.jsonl", "{\"a\": 1}\n[0.5, 2]\n");
    let documents = Dataset::json_lines(&folder.0, Some(".jsonl"), Malformed::Refuse).unwrap();
    assert_eq!((json(&documents, 0), json(&documents, 1)), (r#"{"a":1}"#.to_string(), "[0.5,2.0]".to_string()));
    let table = folder.write("a.csv", "id;name;x\n1;Ada;\n2;Bob;0.5\n3\n");
    let options = CsvOptions::new().delimiter(b';').has_header(true).skip_malformed(true).missing(-1.0);
    let types = Value::map([("id", Value::string("text").unwrap())]).unwrap();
    let rows = Dataset::csv(table, None, Some(&types), options).unwrap();
    assert_eq!((rows.len(), rows.num_skipped()), (2, 1));
    assert_eq!(json(&rows, 0), r#"{"id":"1","name":"Ada","x":-1.0}"#);
    let numbers = folder.write("a.bin", [1u8, 0, 2, 0]);
    assert_eq!(Tensor::map_file(&numbers, Some(DType::Int16)).unwrap().to_vec::<i16>().unwrap(), [1, 2]);
    assert!(Tensor::map_file(&numbers, None).is_err());
    let file = folder.0.join("a.safetensors");
    save(&Value::map([("x", int64(&[5, 6]).into())]).unwrap(), None, &file, None).unwrap();
    assert_eq!(json(&Dataset::safetensors(file).unwrap(), 1), r#"{"x":6}"#);
    assert_eq!(Dataset::text(folder.0.join("a.txt"), None, 2).unwrap().len(), 4);
    let missing = Dataset::lines(Path::new("/nowhere/a.txt"), None, Malformed::Refuse).err().unwrap();
    assert_eq!(missing.code(), ErrorCode::NotFound);
}

#[test]
fn images_as_items() {
    let folder = Folder::new("images");
    // One red pixel.
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0c\
        IDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";
    folder.write("red.png", png);
    folder.write("notes.txt", "no image");
    match Dataset::images(&folder.0, ImageOptions::new().channels(3).height(2).width(1)) {
        Err(error) => assert_eq!(error.code(), ErrorCode::Unsupported), // a build without the libraries
        Ok(images) => {
            assert_eq!((images.len(), images.num_skipped()), (1, 1));
            let item = images.item(0).unwrap();
            assert_eq!(item.get("image").unwrap().to_json().unwrap(), "[[[255],[255]],[[0],[0]],[[0],[0]]]");
        }
    }
}

/// The squares; -1 of them has none, and 13 is unlucky.
struct Squares(i64);

impl Items for Squares {
    fn length(&self) -> CallbackResult<i64> {
        assert!(self.0 >= 0, "a negative length");
        Ok(self.0)
    }

    fn item(&self, index: i64) -> CallbackResult<Value> {
        if index == 13 {
            return Err("unlucky".into());
        }
        Ok(Value::from(index * index))
    }
}

/// Items that say their epoch.
struct Epochs(AtomicI64);

impl Items for Epochs {
    fn length(&self) -> CallbackResult<i64> {
        Ok(2)
    }

    fn set_epoch(&self, epoch: i64) -> CallbackResult<()> {
        self.0.store(epoch, Ordering::Relaxed);
        Ok(())
    }

    fn item(&self, index: i64) -> CallbackResult<Value> {
        Ok(Value::from(10 * self.0.load(Ordering::Relaxed) + index))
    }
}

#[test]
fn items_hear_of_the_epoch() {
    let items = Dataset::custom(Epochs((-1).into())).unwrap();
    let mut loader = loader(&items, 2);
    assert_eq!(batches(&mut loader), ["[0,1]"]);
    assert_eq!(batches(&mut loader), ["[10,11]"]);
}

#[test]
fn settings_are_told_and_changed() {
    let state = StateOptions::new().cpu(true).build().unwrap();
    let items = Dataset::custom(Squares(3)).unwrap();
    let plain = loader(&items, 2);
    assert!(plain.config().is_err());
    let mut prepared = state.prepare_data_loader(&plain, DataLoaderConfig::new().even_batches(true)).unwrap();
    assert_eq!((prepared.total_batch_size().unwrap(), prepared.total_dataset_length().unwrap()), (2, 3));
    prepared.set_even_batches(false).unwrap();
    assert_eq!(prepared.config().unwrap().get("even_batches").unwrap().to_json().unwrap(), "false");
    assert!(!state.in_dataloader() && !state.fork_launched());
    prepared.next().unwrap().unwrap();
    assert!(state.in_dataloader());
    state.set_gradient_accumulation(GradientAccumulationOptions::new().num_steps(3).true_divisor(true)).unwrap();
    let settings = r#"{"num_steps":3,"adjust_scheduler":false,"sync_with_dataloader":true,"sync_each_batch":false,"true_divisor":true}"#;
    assert_eq!(state.gradient_accumulation().unwrap().to_json().unwrap(), settings);
}

#[test]
fn items_of_the_program() {
    let squares = Dataset::custom(Squares(5)).unwrap();
    assert_eq!((squares.len(), json(&squares, 3)), (5, "9".to_string()));
    assert_eq!(batches(&mut loader(&squares, 3)), ["[0,1,4]", "[9,16]"]);
    let workers = DataLoaderOptions::new().batch_size(2).num_workers(2).prefetch(1);
    let mut parallel = DataLoader::new(&squares, workers).unwrap();
    assert_eq!(batches(&mut parallel), ["[0,1]", "[4,9]", "[16]"]);
    let error = Dataset::custom(Squares(14)).unwrap().item(13).unwrap_err();
    assert_eq!((error.code(), error.source().unwrap().to_string()), (ErrorCode::User, "unlucky".to_string()));
    let payload = std::panic::catch_unwind(|| Dataset::custom(Squares(-1)).unwrap().len()).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"a negative length"));
}

/// Counts up, skips without making, and says when it is dropped.
struct Counter {
    next: i64,
    skipped: Arc<AtomicI64>,
    live: Arc<AtomicI64>,
}

impl Reader for Counter {
    fn next_item(&mut self) -> CallbackResult<Option<Value>> {
        self.next += 1;
        Ok((self.next <= 6).then(|| Value::from(self.next - 1)))
    }

    fn skip_items(&mut self, count: i64) -> CallbackResult<i64> {
        let count = count.min(6 - self.next);
        self.next += count;
        self.skipped.fetch_add(count, Ordering::SeqCst);
        Ok(count)
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn streams_of_the_program() {
    let (skipped, live) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
    let (skips, lives) = (Arc::clone(&skipped), Arc::clone(&live));
    let stream = Dataset::stream(Some(6), 1, move |_, _, _| {
        lives.fetch_add(1, Ordering::SeqCst);
        Ok(Counter { next: 0, skipped: Arc::clone(&skips), live: Arc::clone(&lives) })
    })
    .unwrap();
    let mut first = loader(&stream, 2);
    assert_eq!((stream.len(), first.num_batches().unwrap()), (6, 3));
    first.next().unwrap().unwrap();
    let position = first.state_dict().unwrap();
    assert_eq!(batches(&mut first), ["[2,3]", "[4,5]"]);
    let mut second = loader(&stream, 2);
    second.load_state_dict(&position).unwrap();
    assert_eq!(batches(&mut second), ["[2,3]", "[4,5]"]);
    assert_eq!(skipped.load(Ordering::SeqCst), 2);
    drop((first, second, stream));
    assert_eq!(live.load(Ordering::SeqCst), 0);

    // An iterator cannot skip by itself, and need not say how long it is.
    let unknown = stream_of(3);
    assert_eq!(unknown.try_len().unwrap_err().code(), ErrorCode::Unsupported);
    assert_eq!((unknown.len(), unknown.is_empty()), (-1, false));
    assert_eq!(loader(&unknown, 2).num_batches().unwrap_err().code(), ErrorCode::Unsupported);
    assert_eq!(unknown.item(0).unwrap_err().code(), ErrorCode::Unsupported);
    assert_eq!(batches(&mut loader(&unknown, 2).skip_first_batches(1).unwrap()), ["[2]"]);
    let broken = Dataset::stream(None, 1, |_, _, _| Ok(std::iter::once(Err("torn".into())))).unwrap();
    assert_eq!(loader(&broken, 1).next().unwrap().unwrap_err().source().unwrap().to_string(), "torn");
}

#[test]
fn streams_of_datasets() {
    let numbers = Dataset::custom(Squares(3)).unwrap();
    assert_eq!(batches(&mut loader(&numbers.as_stream(None).unwrap(), 3)), ["[0,1,4]"]);
    assert_eq!(loader(&numbers.as_stream(Some(1)).unwrap(), 1).count(), 3);
    let sources = [&numbers, &stream_of(4)];
    let merged = Dataset::merge(&sources, None, 3, MergeEnd::All).unwrap();
    assert_eq!(loader(&merged, 1).count(), 7);
    let weighted = Dataset::merge(&sources, Some(&[1.0, 1e-9]), 3, MergeEnd::First).unwrap();
    assert_eq!(batches(&mut loader(&weighted, 1)), ["[0]", "[1]", "[4]"]);
}

#[test]
fn loaders_pad() {
    let ragged = Dataset::ragged(&[&int64(&[1, 2, 3])], &int64(&[0, 1, 3])).unwrap();
    let options = DataLoaderOptions::new().batch_size(2).collate(Collate::Pad).padding_value(-1.0).padding_masks(true);
    let options = options.pad_to_multiple_of(3).padding_side(PaddingSide::Left).pin_memory(false);
    assert_eq!(
        batches(&mut DataLoader::new(&ragged, options).unwrap()),
        ["[[[-1,-1,1],[-1,2,3]],[[false,false,true],[false,true,true]]]"]
    );
    assert!(DataLoader::new(&ragged, options.collate(Collate::Stack)).and_then(|mut it| it.next().unwrap()).is_err());
}

#[test]
fn functions_of_the_program_make_batches() {
    let squares = Dataset::custom(Squares(4)).unwrap();
    let mut sums = loader(&squares, 2);
    sums.set_collate(|items| Ok(Value::from(items.iter().filter_map(Value::as_int).sum::<i64>()))).unwrap();
    assert_eq!(batches(&mut sums), ["1", "13"]);
    assert_eq!(sums.epoch(), 1);
    assert_eq!(sums.set_collate(|_| Ok(Value::none())).unwrap_err().code(), ErrorCode::InvalidState);

    let mut chosen = DataLoader::new(&squares, DataLoaderOptions::new()).unwrap();
    chosen.set_batch_sampler(None, |epoch| Ok(Value::list([int64(&[3, epoch]), int64(&[2])])?)).unwrap();
    assert_eq!(batches(&mut chosen), ["[9,0]", "[4]"]);
    assert_eq!(batches(&mut chosen), ["[9,1]", "[4]"]);

    let mut failing = loader(&squares, 2);
    failing.set_collate(|_| Err("no batch".into())).unwrap();
    assert_eq!(failing.next().unwrap().unwrap_err().source().unwrap().to_string(), "no batch");
}

#[test]
fn rank_0_reads_and_cuts_for_all() {
    let seen = ranks::run(2, |state| {
        let rows = Dataset::tensors(&[&int64(&[0, 1, 2, 3, 4, 5])]).unwrap();
        let mut plain = loader(&rows, 2);
        plain
            .set_slice(|rows, range, rank, num_ranks| {
                let rows = rows.tensor_at(0)?.to_vec::<i64>()?;
                let own: Vec<i64> = range.map(|row| rows[row as usize] + 10 * i64::from(rank)).collect();
                assert_eq!(num_ranks, 2);
                Ok(Value::list([int64(&own)])?)
            })
            .unwrap();
        let config = DataLoaderConfig::new().dispatch_batches(true).use_seedable_sampler(true).data_seed(1);
        let config = config.use_stateful_dataloader(true);
        let mut loader = state.prepare_data_loader(&plain, config).unwrap();
        assert_eq!(loader.valid_rows(), 0);
        let mut seen = Vec::new();
        while let Some(batch) = loader.next() {
            seen.push((batch.unwrap().tensor_at(0).unwrap().to_vec::<i64>().unwrap(), loader.valid_rows()));
        }
        seen
    });
    let of_rank = |rank: usize| seen[rank].iter().map(|(rows, _)| rows.clone()).collect::<Vec<_>>();
    assert_eq!(of_rank(0)[0], [0, 1]);
    assert_eq!(of_rank(1)[0], [12, 13]);
    assert_eq!(seen.iter().flatten().map(|(_, valid)| valid).sum::<i64>(), 6);
}
