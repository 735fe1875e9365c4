//! Compresses every image for all generated SM targets and generates the table of images and
//! entries. A published package has these files in `images`.
//!
//! The texts of one image for different targets are nearly the same. They share one Brotli stream,
//! in the order of the targets, which is hardly longer than one compressed text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, io, thread};

use brotli::CompressorWriter;
use retrograph_ptx::SmTarget;
use retrograph_ptx::ast::Module;
use sha2::{Digest, Sha256};

/// Brotli quality: lower compresses worse, higher takes longer without a gain.
const QUALITY: u32 = 5;
/// Brotli window of 2²² bytes: longer than a text, so that it reaches the text of the previous
/// target.
const WINDOW: u32 = 22;

/// An image for one target.
struct Text {
    whole: String,
    /// The table row of its entries.
    entries: String,
}

/// One image: its concatenated texts, and the table row of each.
struct Image {
    name: &'static str,
    stream: Vec<u8>,
    texts: String,
}

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(packaged)");
    let folder = |name| PathBuf::from(env::var_os(name).expect("cargo sets it for build scripts"));
    let manifest = folder("CARGO_MANIFEST_DIR");
    let packed = manifest.join("images");
    // Only packages have this manifest. In a checkout, `images` may be older than the sources.
    let is_package = manifest.join("Cargo.toml.orig").exists();
    if is_package {
        // Tests have their own copy of what they need of `retrograph-test-support`.
        println!("cargo::rustc-cfg=packaged");
    }
    let out = if is_package && packed.exists() { packed } else { generate(folder("OUT_DIR"))? };
    println!("cargo::rustc-env=RETROGRAPH_KERNEL_IMAGES={}", out.display());
    Ok(())
}

/// Writes the files to `out`.
fn generate(out: PathBuf) -> io::Result<PathBuf> {
    let mut table = String::from("[\n");
    let images = images();
    for (Image { name, texts, .. }, packed) in images.iter().zip(pack(&images)) {
        fs::write(out.join(format!("{name}.br")), packed)?;
        line(&mut table, format_args!("    Image {{ name: {name:?}, texts: [{texts}],"));
        let file = format_args!("concat!(env!(\"RETROGRAPH_KERNEL_IMAGES\"), \"/{name}.br\")");
        line(&mut table, format_args!("        packed: include_bytes!({file}) }},"));
    }
    table.push_str("]\n");
    fs::write(out.join("images.rs"), table)?;
    fs::write(out.join("number_of_images.rs"), images.len().to_string())?;
    fs::write(out.join("dynamic_shared.rs"), dynamic_shared())?;
    Ok(out)
}

/// Returns all images with their texts for all targets. Targets are generated in parallel.
fn images() -> Vec<Image> {
    let mut images: Vec<Image> = Vec::new();
    let generated = thread::scope(|scope| {
        let start = |&target| scope.spawn(move || texts(target));
        let threads: Vec<_> = SmTarget::GENERATED.iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
        let texts = threads.into_iter().map(join).collect::<Result<Vec<_>, _>>();
        texts.expect("every image can be generated")
    });
    for (index, (name, Text { whole, entries })) in
        generated.into_iter().flat_map(|texts| texts.into_iter().enumerate())
    {
        if index == images.len() {
            images.push(Image { name, stream: Vec::new(), texts: String::new() });
        }
        let image = &mut images[index];
        assert_eq!(image.name, name, "every target has the same images");
        let digest = digest(&whole);
        let start = image.stream.len();
        image.stream.extend_from_slice(whole.as_bytes());
        let end = image.stream.len();
        let row = format_args!("Text::packed({digest:?}, {start}..{end}, &[{entries}]),");
        line(&mut image.texts, row);
    }
    images
}

/// Returns the names and texts of the images for `target`.
fn texts(target: SmTarget) -> Vec<(&'static str, Text)> {
    let images = retrograph_kernels_ptx::images(target);
    images.into_iter().map(|(name, module)| (name, text(module))).collect()
}

/// Returns the text of `module` and the positions of its entries. The declarations before the first
/// entry, followed by one entry, are the text of a module with that entry alone.
fn text(module: Module) -> Text {
    let Module { isa, target, variables, functions, entries: all, .. } = module;
    let with = |entries| {
        let (variables, functions) = (variables.clone(), functions.clone());
        let lines = Default::default();
        Module { isa, target, variables, functions, entries, lines }.to_string()
    };
    let (mut whole, mut entries) = (with(Vec::new()), String::new());
    let shared = whole.len();
    for entry in all {
        let name = entry.name.clone();
        let cut = with(vec![entry]);
        let start = whole.len();
        whole.push_str(&cut[shared..]);
        let (digest, end) = (digest(&cut), whole.len());
        let row =
            format_args!("Entry {{ name: {name:?}, digest: {digest:?}, bytes: {start}..{end} }},");
        line(&mut entries, row);
    }
    Text { whole, entries }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Compresses the streams in parallel.
fn pack(images: &[Image]) -> Vec<Vec<u8>> {
    let next = AtomicUsize::new(0);
    let packed: Vec<OnceLock<Vec<u8>>> = images.iter().map(|_| OnceLock::new()).collect();
    let work = || {
        while let Some((image, packed)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            images.get(index).zip(packed.get(index))
        } {
            packed.get_or_init(|| brotli(&image.stream));
        }
    };
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    packed.into_iter().map(|packed| packed.into_inner().expect("every image is packed")).collect()
}

fn brotli(stream: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut writer = CompressorWriter::new(&mut packed, 1 << 16, QUALITY, WINDOW);
    writer.write_all(stream).and_then(|()| writer.flush()).expect("writing to memory succeeds");
    drop(writer);
    packed
}

fn line(to: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(to, "{what}").expect("writing to a string does not fail");
}

/// Returns the bytes of dynamic shared memory per generated target, for each entry that needs any;
/// 0 for targets without the entry.
fn dynamic_shared() -> String {
    let mut bytes = BTreeMap::<&str, [u32; SmTarget::GENERATED.len()]>::new();
    for (place, target) in SmTarget::GENERATED.iter().enumerate() {
        for (entry, needed) in retrograph_kernels_ptx::dynamic_shared(*target) {
            bytes.entry(entry).or_default()[place] = needed;
        }
    }
    format!("&{:?}", bytes.into_iter().collect::<Vec<_>>())
}
