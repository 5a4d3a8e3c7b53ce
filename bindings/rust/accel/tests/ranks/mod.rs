// SPDX-License-Identifier: Apache-2.0
//! Ranks as threads of one process.
use accel::{State, StateOptions};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

/// Below the ports that the system gives to programs that connect, which would take it before a rank listens.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 16384
            + (std::process::id() as u16).wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 13000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// What `body` gives on each of `count` ranks.
pub fn run<T: Send>(count: i32, body: impl Fn(State) -> T + Sync) -> Vec<T> {
    run_with(count, |options| options, body)
}

/// The same with further options.
pub fn run_with<T: Send>(
    count: i32,
    settings: impl Fn(StateOptions) -> StateOptions + Sync,
    body: impl Fn(State) -> T + Sync,
) -> Vec<T> {
    let port = free_port();
    let start = |rank| {
        let options = StateOptions::new()
            .cpu(true)
            .process_index(rank)
            .num_processes(count)
            .local_process_index(rank)
            .local_num_processes(count)
            .main_process_port(port.into())
            .timeout(Duration::from_secs(60));
        body(settings(options).build().unwrap())
    };
    thread::scope(|threads| {
        let start = &start;
        let ranks: Vec<_> = (0..count).map(|rank| threads.spawn(move || start(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
