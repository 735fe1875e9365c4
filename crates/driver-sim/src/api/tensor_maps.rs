//! Tensor maps.

use retrograph_driver_sys::*;
use retrograph_ptx_exec::tensor_map::{
    ELEMENT_TYPES, MAX_DIMENSIONS, TENSOR_MAP_BYTES, TensorMap, TensorMapSwizzle,
};

use crate::argument::{Call, In, Out};
use crate::diagnostic::DiagnosticKind;
use crate::refusal::{Refusal, Rule, invalid};
use crate::state::State;

impl State {
    /// Refuses a tensor map and reports the reason.
    fn refuse_map(&mut self, why: &str) -> Refusal {
        self.diagnose(DiagnosticKind::Unattested, format!("tensor map: {why}"));
        invalid(Rule::TensorMap)
    }

    #[expect(clippy::too_many_arguments, reason = "the signature is the driver's")]
    pub(crate) fn cuTensorMapEncodeTiled(
        &mut self,
        map: Out<CUtensorMap>,
        data_type: CUtensorMapDataType,
        rank: u32,
        address: Out<c_void>,
        dimensions: In<u64>,
        strides: In<u64>,
        box_dimensions: In<u32>,
        element_strides: In<u32>,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        l2_promotion: CUtensorMapL2promotion,
        oob_fill: CUtensorMapFloatOOBfill,
    ) -> Call {
        map.require()?;
        let rank = rank as usize;
        if !(1..=MAX_DIMENSIONS).contains(&rank) {
            return Err(self.refuse_map("a tensor has 1 to 5 dimensions"));
        }
        let element = match data_type {
            // Reducing copies treat these types differently.
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ
            | CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
            | CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ => {
                return Err(self.unsupported(format!("{data_type:?} of tensor maps")));
            }
            other => ELEMENT_TYPES.get(other.0 as usize).copied(),
        };
        let swizzle = TensorMapSwizzle::ALL.get(swizzle.0 as usize).copied();
        let (Some(element), Some(swizzle)) = (element, swizzle) else {
            return Err(self.refuse_map("an unknown type of elements or swizzle"));
        };
        if l2_promotion.0 > 3 || interleave.0 > 2 || oob_fill.0 > 1 {
            return Err(self.refuse_map("an unknown promotion, interleave or fill"));
        }
        let plain = interleave == CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE
            && oob_fill == CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        let steps = element_strides.list(rank)?;
        if !plain || steps.iter().any(|&step| step != 1) {
            let what = "tensor maps with interleaving, NaN fill or element strides";
            return Err(self.unsupported(what));
        }
        let found = TensorMap {
            element,
            address: address.pointer() as u64,
            dimensions: dimensions.list(rank)?,
            strides: if rank > 1 { strides.list(rank - 1)? } else { Vec::new() },
            extent: box_dimensions.list(rank)?,
            swizzle,
        };
        let encoded = self.encode_map(&found)?;
        map.write(encoded)
    }

    pub(crate) fn cuTensorMapReplaceAddress(
        &mut self,
        map: Out<CUtensorMap>,
        address: Out<c_void>,
    ) -> Call {
        let mut bytes = [0; TENSOR_MAP_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(map.get()?.opaque) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let found =
            TensorMap::decode(&bytes).map_err(|error| self.refuse_map(&error.to_string()))?;
        let moved = TensorMap { address: address.pointer() as u64, ..found };
        let encoded = self.encode_map(&moved)?;
        map.write(encoded)
    }

    fn encode_map(&mut self, map: &TensorMap) -> Result<CUtensorMap, Refusal> {
        if let Some(why) = map.fault() {
            return Err(self.refuse_map(why));
        }
        let bytes = map.encode();
        let word = |index: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[8 * index..8 * index + 8]);
            u64::from_le_bytes(raw)
        };
        Ok(CUtensorMap { opaque: std::array::from_fn(word) })
    }
}
