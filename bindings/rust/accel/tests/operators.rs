// SPDX-License-Identifier: Apache-2.0
//! The typed operators are those of `operators.txt`, with the types of LibTorch.
#[path = "../examples/generate_operators/generator.rs"]
mod generator;

#[test]
fn the_generated_file_is_current() {
    let current = include_str!("../src/ops/generated.rs");
    assert!(
        generator::generate().unwrap() == current,
        "operators.txt and src/ops/generated.rs differ; see the head of operators.txt"
    );
}
