//! The programs run on one and on two processes, and say the same.
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

/// The lines `name: value` that the main process prints.
type Facts = BTreeMap<String, String>;

fn start(program: &str, arguments: &[&str], rank: usize, processes: usize, port: u16) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("ACCELERATE_USE_CPU", "true").env("OMP_NUM_THREADS", "1").env("MASTER_PORT", port.to_string());
    for (name, number) in
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", processes), ("LOCAL_WORLD_SIZE", processes)]
    {
        command.env(name, number.to_string());
    }
    command.spawn().unwrap()
}

fn run(program: &str, arguments: &[&str], processes: usize) -> Facts {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ranks: Vec<Child> = (0..processes).map(|rank| start(program, arguments, rank, processes, port)).collect();
    let outputs: Vec<Output> = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(outputs[1..].iter().all(|output| output.stdout.is_empty()), "only the main process prints");
    let text = String::from_utf8(outputs[0].stdout.clone()).unwrap();
    let facts: Facts = text
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    assert_eq!(facts["processes"], processes.to_string());
    facts
}

/// A place for the files of a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("accel-rust-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The losses of one process, after it was shown that two processes have the same.
fn losses_on_any_number_of_processes(program: &str, arguments: &[&str]) -> Vec<f64> {
    let losses = |facts: Facts| -> BTreeMap<i64, f64> {
        let steps = facts.iter().filter_map(|(name, loss)| Some((name.strip_prefix("loss of step ")?, loss)));
        steps.map(|(step, loss)| (step.parse().unwrap(), loss.parse().unwrap())).collect()
    };
    let alone = losses(run(program, arguments, 1));
    let shared = losses(run(program, arguments, 2));
    assert_eq!(alone.keys().collect::<Vec<_>>(), shared.keys().collect::<Vec<_>>());
    for (step, loss) in &alone {
        assert!((loss - shared[step]).abs() <= 0.02 * loss + 1e-4, "{alone:?} {shared:?}");
    }
    alone.into_values().collect()
}

#[test]
fn hello_gathers_all_ranks() {
    assert_eq!(run(env!("CARGO_BIN_EXE_hello"), &[], 1)["ranks"], "[0]");
    assert_eq!(run(env!("CARGO_BIN_EXE_hello"), &[], 2)["ranks"], "[0, 1]");
}

#[test]
fn train_learns_a_text() {
    let folder = folder("train");
    let text = folder.join("text.txt");
    std::fs::write(&text, "one two three four five six seven eight nine ten\n".repeat(400)).unwrap();
    let losses = losses_on_any_number_of_processes(env!("CARGO_BIN_EXE_train"), &[text.to_str().unwrap(), "40"]);
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(losses.len(), 3);
    assert!(losses[2] < 0.5 * losses[0], "{losses:?}");
}

#[test]
fn the_foreign_module_learns() {
    let losses = losses_on_any_number_of_processes(env!("CARGO_BIN_EXE_foreign_module"), &[]);
    assert_eq!(losses.len(), 6);
    assert!(losses[5] < 0.1 * losses[0], "{losses:?}");
}

#[test]
fn a_resumed_run_repeats_every_loss() {
    let folder = folder("checkpoint");
    let place = folder.join("saved");
    let place = place.to_str().unwrap();
    let whole = run(env!("CARGO_BIN_EXE_checkpoint"), &[place], 2);
    let resumed = run(env!("CARGO_BIN_EXE_checkpoint"), &[place, "--resume"], 2);
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!(whole["losses after the checkpoint"], resumed["losses after the checkpoint"]);
    assert_ne!(whole["losses after the checkpoint"], whole["losses before the checkpoint"]);
}

#[test]
fn embedding_is_shared() {
    let alone = run(env!("CARGO_BIN_EXE_embed"), &[], 1);
    let mut shared = run(env!("CARGO_BIN_EXE_embed"), &[], 2);
    shared.insert("processes".into(), "1".into());
    assert_eq!(alone, shared);
    assert_eq!(alone["vectors"], "[4, 128]");
}
