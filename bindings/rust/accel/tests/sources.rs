//! What the sources must have: a setter for each option of the C API, and a reason for each `unsafe`.
use std::fs;
use std::path::Path;

/// All sources below a folder, as one text a file.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            texts.extend(sources(&path));
        } else {
            texts.push(fs::read_to_string(path).unwrap());
        }
    }
    texts
}

/// What is set in another way than by a function of the field's name.
fn is_set_otherwise(record: &str, field: &str) -> bool {
    matches!(
        (record, field),
        (_, "struct_size" | "reserved")
            | ("accel_state_options_t", "timeout_ms") // timeout()
            | ("accel_dataloader_options_t", "sampler") // DataLoader::with_sampler()
            | ("accel_packing_options_t", "document_offsets") // an argument of Dataset::packed()
            | ("accel_csv_options_t", "types") // an argument of Dataset::csv()
            | ("accel_prepare_model_options_t", "ddp_options") // State::prepare_model()
            | ("accel_ddp_options_t", "check_reduction") // has no effect
            | ("accel_ddp_options_t", "comm_state_option") // State::prepare_model_with_power_sgd()
            | ("accel_local_sgd_options_t", "gradient_group") // State::local_sgd()
            | ("accel_prepare_item_t", _) // State::prepare()
    )
}

/// The text of the builder over a struct: a macro call, or the file of a builder that is written out.
fn builder_of<'a>(record: &str, text: &'a str) -> Option<&'a str> {
    if text.contains(&format!("raw: sys::{record}")) {
        return Some(text);
    }
    let begin = text.find(&format!("({record} = "))?;
    text[begin..].split("\noptions! {").next()
}

#[test]
fn every_option_has_a_setter() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = fs::read_to_string(root.join("../accel-sys/src/generated.rs")).unwrap();
    let written = sources(&root.join("src"));
    let mut missing = Vec::new();
    let mut records = 0;
    for declaration in generated.split("pub struct ").skip(1) {
        let (record, body) = declaration.split_once(" {\n").unwrap();
        let body = body.split("\n}").next().unwrap();
        if !body.contains("pub struct_size:") {
            continue;
        }
        records += 1;
        let builder = written.iter().find_map(|text| builder_of(record, text)).unwrap_or("");
        for line in body.lines().filter_map(|line| line.trim().strip_prefix("pub ")) {
            let field = line.split(':').next().unwrap();
            let setters = [format!(" {field}: "), format!("fn {field}(")];
            let is_there = setters.iter().any(|setter| builder.contains(setter));
            if !is_there && !is_set_otherwise(record, field) {
                missing.push(format!("{record}.{field}"));
            }
        }
    }
    assert!(records > 20, "only {records} structs were found");
    assert!(missing.is_empty(), "add to the `options!` of each: {missing:?}");
}

/// Whether a block or implementation is nothing but a call of the C API.
fn is_plain_call(code: &str) -> bool {
    let inside = code.split_once('{').map_or("", |(_, inside)| inside).trim_start().trim_start_matches('&');
    let called = inside.trim_start_matches("text(");
    called.starts_with("sys::") || called.starts_with("accel_sys::")
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let (mut silent, mut seen) = (Vec::new(), 0);
    for text in sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))) {
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap();
            let is_block = code.contains("unsafe {") || code.contains("unsafe impl");
            if !is_block {
                continue;
            }
            seen += 1;
            let near = lines[index..lines.len().min(index + 3)].join("\n");
            let from = near.find("unsafe").unwrap();
            let reasons = &lines[index.saturating_sub(4)..=index];
            if !is_plain_call(&near[from..]) && !reasons.iter().any(|line| line.contains("// SAFETY: ")) {
                silent.push(line.to_string());
            }
        }
    }
    assert!(seen > 300, "{seen} blocks: are the sources there?");
    assert!(silent.is_empty(), "without `// SAFETY: `: {silent:#?}");
}
