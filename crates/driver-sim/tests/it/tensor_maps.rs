//! Tensor maps.

use retrograph_driver_sim::{Config, DiagnosticKind};
use retrograph_driver_sys::*;
use retrograph_ptx::ast::Type;
use retrograph_ptx_exec::tensor_map::{TensorMap, TensorMapSwizzle};

use crate::machine::{Machine, cu};

/// Encodes a bf16 matrix at `address` with rows of 208 bytes and boxes of `columns` columns.
pub(crate) fn encode(
    machine: &Machine,
    address: usize,
    columns: u32,
) -> Result<CUtensorMap, CUresult> {
    let mut map = CUtensorMap::default();
    let (dimensions, strides) = ([100u64, 30], [208u64]);
    let (extent, steps) = ([columns, 16], [1u32, 1]);
    let code = cu!(
        machine,
        cuTensorMapEncodeTiled(
            &mut map,
            CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            std::ptr::without_provenance_mut(address),
            dimensions.as_ptr(),
            strides.as_ptr(),
            extent.as_ptr(),
            steps.as_ptr(),
            CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    );
    code.ok().map(|()| map)
}

#[test]
fn an_encoded_map_decodes_to_its_parameters() {
    let map = encode(&Machine::new(), 0x1000, 64).unwrap();
    let mut bytes = [0; 128];
    for (to, word) in bytes.chunks_exact_mut(8).zip(map.opaque) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let expected = TensorMap {
        element: Type::Bf16,
        address: 0x1000,
        dimensions: vec![100, 30],
        strides: vec![208],
        extent: vec![64, 16],
        swizzle: TensorMapSwizzle::Bytes128,
    };
    assert_eq!(TensorMap::decode(&bytes), Ok(expected));
}

#[test]
fn a_map_that_hardware_cannot_use_is_refused_with_the_reason() {
    for (address, columns, reason) in [(0x1008, 64, "address"), (0x1000, 72, "swizzle")] {
        // No recorded trace shows these errors yet.
        let mut config = Config::default();
        config.attested_only = false;
        config.memory_bytes = 1 << 24;
        let machine = Machine::with(config);
        let refused = encode(&machine, address, columns);
        assert_eq!(refused, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        let said = machine.diagnostics(DiagnosticKind::Unattested);
        assert!(said.len() == 1 && said[0].contains(reason), "{said:?}");
    }
}
