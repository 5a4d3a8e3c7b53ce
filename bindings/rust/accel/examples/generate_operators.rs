//! Writes `src/ops/generated.rs` to standard output: a function for each line of `operators.txt`, with the types of the
//! schema that LibTorch itself gives.
#[path = "generate_operators/generator.rs"]
mod generator;

fn main() -> accel::Result<()> {
    print!("{}", generator::generate()?);
    Ok(())
}
