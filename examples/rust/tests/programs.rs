//! The network with gradients of its own learns the same on one and on two processes. (The other programs are compared with
//! those of the other languages: `meson test examples_agree`.)
use std::net::TcpListener;
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

#[test]
fn own_gradients_learn_the_same_on_any_number_of_processes() {
    let program = env!("CARGO_BIN_EXE_own_gradients");
    let (alone, shared) = (losses(program, 1), losses(program, 2));
    assert_eq!((alone.len(), shared.len()), (6, 6));
    assert!(alone[5] < 0.1 * alone[0], "{alone:?}");
    for (alone, shared) in alone.iter().zip(&shared) {
        assert!((alone - shared).abs() <= 0.02 * alone + 1e-4, "{alone} {shared}");
    }
}
