//! The arguments that say in which numbers a run computes.

use clap::{Args, ValueEnum};
use retrograph_finetune::{Dtype, Precision, Quantization};

#[derive(Debug, Args)]
pub(crate) struct PrecisionArguments {
    /// The type of the factors of all products, and of frozen matrices: f32 or bf16. Sums,
    /// activations, norms, trained weights and the optimizer are f32 in any case.
    #[arg(long, value_name = "TYPE", default_value = "f32")]
    dtype: Dtype,
    /// Keep the frozen weights of the decoder's linear layers in fewer bits; with LoRA.
    #[arg(long, value_name = "TYPE", value_enum)]
    quantize: Option<QuantizeArgument>,
    /// Quantize the scales of the quantized weights in turn.
    #[arg(long, requires = "quantize")]
    double_quant: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QuantizeArgument {
    /// 4-bit NormalFloat in blocks of 64, as bitsandbytes has it.
    Nf4,
}

impl PrecisionArguments {
    pub(crate) fn precision(&self) -> Precision {
        let quantize = |argument| match argument {
            QuantizeArgument::Nf4 => Quantization::Nf4 { double: self.double_quant },
        };
        Precision { dtype: self.dtype, quantize: self.quantize.map(quantize) }
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
        Ok(Line::try_parse_from(line)?.precision.precision())
    }

    #[test]
    fn f32_is_what_nothing_asks_for_and_scales_need_something_to_scale() {
        assert_eq!(parsed(&[]).unwrap(), Precision::F32);
        assert_eq!(parsed(&["--dtype", "bf16"]).unwrap(), Precision::BF16);
        let line = ["--dtype", "bf16", "--quantize", "nf4", "--double-quant"];
        assert_eq!(parsed(&line).unwrap(), Precision::BF16.nf4(true));
        assert!(parsed(&["--double-quant"]).is_err());
        assert!(parsed(&["--dtype", "f16"]).unwrap_err().to_string().contains("f32 and bf16"));
    }
}
