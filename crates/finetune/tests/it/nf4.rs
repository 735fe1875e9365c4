//! Compares codes and scales with bitsandbytes (`golden/nf4_bitsandbytes.py`).

use std::path::Path;

use half::bf16;
use retrograph_kernels::nf4::{self, Nested};
use safetensors::SafeTensors;

use crate::golden::hashed;

/// Name and number of elements, as in the script.
const CASES: [(&str, usize); 5] = [
    ("plain", 24 * 64),
    ("tail", 25 * 40),
    ("zeros", 4 * 64),
    ("halves", 24 * 64),
    ("many", 300 * 64),
];

/// The weights of the script.
fn weights(name: &str, len: usize) -> Vec<f32> {
    let value = |index: u32| {
        let unit = f64::from(hashed(name, index) >> 8) - f64::from(1 << 23);
        (unit / f64::from(1 << 23) / 4.0) as f32
    };
    let mut values: Vec<f32> = (0..len as u32).map(value).collect();
    match name {
        "zeros" => values[64..128].fill(0.0),
        "halves" => values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32()),
        _ => {}
    }
    values
}

/// The tensors that the script wrote.
struct Golden(Vec<u8>);

impl Golden {
    fn open() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let path = folder.join("nf4.safetensors");
        Self(std::fs::read(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; nf4_bitsandbytes.py next to it makes it", path.display())
        }))
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).unwrap().data().to_vec()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let bytes = self.bytes(name);
        let four = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
        bytes.chunks_exact(4).map(four).collect()
    }
}

#[test]
fn codes_and_scales_match_bitsandbytes() {
    let golden = Golden::open();
    assert_eq!(golden.floats("quant_map")[..16], *nf4::VALUES);
    for (name, len) in CASES {
        let quantized = nf4::quantize(&weights(name, len)).unwrap();
        assert_eq!(quantized.codes, golden.bytes(&format!("{name}.codes")), "{name}");
        assert_eq!(quantized.absmax, golden.floats(&format!("{name}.absmax")), "{name}");
        let back = nf4::dequantize(&quantized.codes, &quantized.absmax, len.min(256));
        assert_eq!(back, golden.floats(&format!("{name}.f32")), "{name}");
        let rounded: Vec<f32> = back.iter().map(|&x| bf16::from_f32(x).to_f32()).collect();
        assert_eq!(rounded, golden.floats(&format!("{name}.bf16")), "{name}");
    }
}

#[test]
fn nested_scales_match_bitsandbytes() {
    let golden = Golden::open();
    let last_bit = |found: f32, expected: f32| {
        (i64::from(found.to_bits()) - i64::from(expected.to_bits())).abs() <= 1
    };
    for (name, len) in CASES {
        let of = |part: &str| format!("{name}.nested.{part}");
        // The map is made on the host of the script, by instructions that can differ in a last bit,
        // and the mean is added up in another order there.
        for (found, expected) in nf4::dynamic_map().iter().zip(golden.floats(&of("quant_map"))) {
            assert!(last_bit(*found, expected), "{name}: {found} and {expected}");
        }
        let absmax = nf4::quantize(&weights(name, len)).unwrap().absmax;
        let offset = golden.floats(&of("offset"))[0];
        let mean = Nested::new(&absmax).offset;
        assert!((mean / offset - 1.0).abs() < 1e-6, "{name}: {mean} and {offset}");
        let nested = Nested::around(&absmax, offset);
        assert_eq!(nested.absmax, golden.bytes(&of("absmax")), "{name}");
        assert_eq!(nested.nested, golden.floats(&of("nested_absmax")), "{name}");
    }
}
