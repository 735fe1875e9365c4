//! Encoding of tensor maps, their checks, and swizzles.

use retrograph_ptx::ast::Type;
use retrograph_ptx_exec::tensor_map::{TensorMap, TensorMapError, TensorMapSwizzle};

fn matrix() -> TensorMap {
    TensorMap {
        element: Type::Bf16,
        address: 0x1000,
        dimensions: vec![100, 30],
        strides: vec![208],
        extent: vec![64, 16],
        swizzle: TensorMapSwizzle::Bytes128,
    }
}

#[test]
fn encoding_a_map_round_trips() {
    let cube = TensorMap {
        dimensions: vec![8, 5, 1 << 32],
        strides: vec![16, 96],
        extent: vec![8, 256, 1],
        swizzle: TensorMapSwizzle::None,
        ..matrix()
    };
    for map in [matrix(), cube] {
        assert_eq!(TensorMap::decode(&map.encode()), Ok(map.clone()));
        assert_eq!(map.fault(), None);
    }
    assert_eq!(matrix().box_bytes(), 2048);
}

#[test]
fn bytes_without_an_encoded_map_are_refused() {
    assert_eq!(TensorMap::decode(&[0; 128]), Err(TensorMapError::NotEncoded));
    let mut changed = matrix().encode();
    changed[24] ^= 1;
    assert_eq!(TensorMap::decode(&changed), Err(TensorMapError::Changed));
}

#[test]
fn invalid_tensor_maps_are_refused_by_rule() {
    let said = |map: TensorMap| map.fault().unwrap_or("nothing");
    assert!(said(TensorMap { address: 8, ..matrix() }).contains("address"));
    assert!(said(TensorMap { strides: vec![200], ..matrix() }).contains("multiple of 16"));
    assert!(said(TensorMap { dimensions: vec![0, 30], ..matrix() }).contains("elements"));
    assert!(said(TensorMap { extent: vec![64, 257], ..matrix() }).contains("256"));
    assert!(said(TensorMap { extent: vec![72, 16], ..matrix() }).contains("swizzle"));
    assert!(said(TensorMap { extent: vec![60, 16], ..matrix() }).contains("16 bytes"));
}

#[test]
fn a_swizzle_permutes_the_pieces_of_a_row_by_the_row_index() {
    let piece = |swizzle: TensorMapSwizzle, row: u64, piece: u64| {
        swizzle.apply(row * 128 + piece * 16) / 16 % 8
    };
    assert_eq!(piece(TensorMapSwizzle::Bytes128, 3, 5), 3 ^ 5);
    assert_eq!(piece(TensorMapSwizzle::Bytes128, 9, 5), 1 ^ 5);
    assert_eq!(piece(TensorMapSwizzle::Bytes64, 7, 4), 4 ^ 3);
    assert_eq!(piece(TensorMapSwizzle::Bytes32, 7, 4), 5);
    assert_eq!(piece(TensorMapSwizzle::None, 7, 4), 4);
}
