//! Generates functions that return sizes, offsets and values of driver-sys and nccl-sys from the
//! compiler.

// The library uses all of it.
#[allow(dead_code, unreachable_pub)]
#[path = "src/source/mod.rs"]
mod source;

use std::fmt::Write as _;
use std::path::Path;

use source::{CUDA, Form, NCCL, Source, TypeSource};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/source");
    println!("cargo:rustc-env=ABI_CHECK_TARGET={}", std::env::var("TARGET")?);
    let mut text = String::new();
    for (name, naming) in [("driver", CUDA), ("nccl", NCCL)] {
        let folder = format!("../{name}-sys/src");
        let folder = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join(folder);
        println!("cargo:rerun-if-changed={}", folder.display());
        text += &generate(name, &Source::read(&folder, naming)?)?;
    }
    let out = Path::new(&std::env::var("OUT_DIR")?).join("measured.rs");
    std::fs::write(out, text)?;
    Ok(())
}

fn generate(name: &str, source: &Source) -> Result<String, std::fmt::Error> {
    let mut text = format!("fn measure_{name}(m: &mut Measured) {{\n");
    for item in &source.types {
        let name = &item.name;
        writeln!(text, "m.types.insert({name:?}, (size_of::<{name}>(), align_of::<{name}>()));")?;
        if matches!(item.form, Form::Struct | Form::Union) {
            offsets(&mut text, item)?;
        }
    }
    for constant in &source.constants {
        let (name, expression) = (&constant.name, &constant.expression);
        writeln!(text, "m.constants.insert({name:?}, Number::number({expression}));")?;
    }
    text.push_str("}\n");
    let newtypes =
        source.types.iter().filter(|item| matches!(item.form, Form::Handle | Form::Enumeration(_)));
    for TypeSource { name, .. } in newtypes {
        writeln!(
            text,
            "impl Number for {name} {{ fn number(self) -> i128 {{ self.0.number() }} }}"
        )?;
    }
    for problem in &source.problems {
        println!("cargo:warning={problem}");
    }
    Ok(text)
}

fn offsets(text: &mut String, item: &TypeSource) -> std::fmt::Result {
    let name = &item.name;
    for (field, _) in &item.fields {
        let key = format!("{name}.{}", field.trim_start_matches("r#"));
        writeln!(text, "m.offsets.insert({key:?}, std::mem::offset_of!({name}, {field}));")?;
    }
    Ok(())
}
