//! The arguments for data types.

use clap::{Args, ValueEnum};
use retrograph_finetune::{DType, F32Products, Precision, Quantization, parse_dtype};

#[derive(Debug, Args)]
pub(crate) struct PrecisionArguments {
    /// Data type of matrix-product inputs and of frozen weight matrices: f32 or bf16. Accumulators,
    /// activations, norms, trained weights and the optimizer are always f32 [default: bf16 in
    /// finetune, eval and inspect with --model, else f32].
    #[arg(long, value_name = "TYPE", value_parser = parse_dtype)]
    dtype: Option<DType>,
    /// How tensor cores compute large products with --dtype f32: split-f16, or tf32x3, which is
    /// slower but stays accurate if both operands have outliers above 65536 times the other
    /// elements of their row.
    #[arg(long, value_name = "SCHEME", default_value_t)]
    f32_products: F32Products,
    /// Quantize the frozen weights of the linear layers. Not with --mode full.
    #[arg(long, value_name = "TYPE", value_enum)]
    quantize: Option<QuantizeArgument>,
    /// Also quantize the scales, to 8 bits.
    #[arg(long, requires = "quantize")]
    double_quant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QuantizeArgument {
    /// 4-bit NormalFloat in blocks of 64 weights, as in bitsandbytes.
    Nf4,
}

impl PrecisionArguments {
    /// Returns the data types; `dtype` is the default.
    pub(crate) fn precision(&self, dtype: DType) -> Precision {
        let quantize = |argument| match argument {
            QuantizeArgument::Nf4 => Quantization::Nf4 { double: self.double_quant },
        };
        let (dtype, quantize) = (self.dtype.unwrap_or(dtype), self.quantize.map(quantize));
        let f32_products = self.f32_products;
        Precision { dtype, quantize, f32_products, ..Precision::F32 }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        precision: PrecisionArguments,
    }

    fn parsed(line: &[&str]) -> Result<Precision, clap::Error> {
        let line = std::iter::once("program").chain(line.iter().copied());
        Ok(Line::try_parse_from(line)?.precision.precision(DType::F32))
    }

    #[test]
    fn f32_is_the_default_and_double_quant_needs_quantize() {
        assert_eq!(parsed(&[]).unwrap(), Precision::F32);
        assert_eq!(parsed(&["--dtype", "bf16"]).unwrap(), Precision::BF16);
        let line = ["--dtype", "bf16", "--quantize", "nf4", "--double-quant"];
        assert_eq!(parsed(&line).unwrap(), Precision::BF16.nf4(true));
        assert!(parsed(&["--double-quant"]).is_err());
        assert!(parsed(&["--dtype", "f16"]).unwrap_err().to_string().contains("f32 or bf16"));
    }

    #[test]
    fn f32_products_are_split_f16_or_tf32x3() {
        assert_eq!(parsed(&["--f32-products", "tf32x3"]).unwrap(), Precision::TF32X3);
        assert_eq!(parsed(&["--f32-products", "split-f16"]).unwrap(), Precision::F32);
        let error = parsed(&["--f32-products", "tf32"]).unwrap_err().to_string();
        assert!(error.contains("give split-f16 or tf32x3"), "{error}");
    }
}
