//! Networks with gradients of their own learn the same on one and on two processes. (The other programs are compared with
//! those of the other languages: `meson test examples_agree`.)
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn start(program: &str, rank: usize, processes: usize, port: u16) -> Child {
    let mut command = Command::new(program);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("ACCELERATE_USE_CPU", "true").env("OMP_NUM_THREADS", "1").env("MASTER_PORT", port.to_string());
    for (name, number) in
        [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", processes), ("LOCAL_WORLD_SIZE", processes)]
    {
        command.env(name, number.to_string());
    }
    command.spawn().unwrap()
}

/// The numbers in the lines `loss of step N: LOSS` of the main process.
fn losses(program: &str, processes: usize) -> Vec<f64> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ranks: Vec<Child> = (0..processes).map(|rank| start(program, rank, processes, port)).collect();
    let outputs: Vec<Output> = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(outputs[1..].iter().all(|output| output.stdout.is_empty()), "only the main process prints");
    let text = String::from_utf8(outputs[0].stdout.clone()).unwrap();
    let facts = text.lines().map(|line| line.split_once(": ").unwrap());
    facts.filter(|(name, _)| name.starts_with("loss of step")).map(|(_, loss)| loss.parse().unwrap()).collect()
}

fn assert_learns(program: &str) {
    let (alone, shared) = (losses(program, 1), losses(program, 2));
    assert_eq!((alone.len(), shared.len()), (6, 6));
    assert!(alone[5] < 0.1 * alone[0], "{alone:?}");
    for (alone, shared) in alone.iter().zip(&shared) {
        assert!((alone - shared).abs() <= 0.02 * alone + 1e-4, "{alone} {shared}");
    }
}

#[test]
fn own_gradients_learn_the_same_on_any_number_of_processes() {
    assert_learns(env!("CARGO_BIN_EXE_own_gradients"));
}

/// Builds the program of a framework, whose crates `vendor_frameworks.sh` has fetched, and compares it.
fn assert_framework_learns(name: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let crates = root.join("build/deps/frameworks").join(name);
    if !crates.is_dir() {
        return eprintln!("skipped: {crates:?} is not there; examples/rust/vendor_frameworks.sh fetches it");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("build/frameworks"), PathBuf::from);
    let target = target.join("frameworks").join(name);
    let source = format!("source.vendored.directory={:?}", crates.display().to_string());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet", "--offline", "--locked", "--config", &source]);
    cargo.args(["--config", "source.crates-io.replace-with='vendored'"]).env("CARGO_TARGET_DIR", &target);
    if std::env::var_os("LIBTORCH").is_none() {
        cargo.env("LIBTORCH", root.join("build/deps/torch"));
    }
    let status = cargo.current_dir(root.join("examples/rust").join(name)).status().unwrap();
    assert!(status.success(), "{name} cannot be built");
    assert_learns(target.join("release").join(name).to_str().unwrap());
}

#[test]
fn candle_learns_the_same_on_any_number_of_processes() {
    assert_framework_learns("candle");
}

#[test]
fn burn_learns_the_same_on_any_number_of_processes() {
    assert_framework_learns("burn");
}

#[test]
fn tch_learns_the_same_on_any_number_of_processes() {
    assert_framework_learns("tch");
}
