//! The argument values of a launch.

use std::ffi::c_void;
use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::owner::Owner;
use crate::tensor_map::TensorMap;

/// Bytes at an address that suits every scalar.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
struct Scalar([u8; 16]);

/// Bytes at an address that suits every struct that a kernel can take by value.
#[derive(Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(128))]
struct Line([u8; 128]);

/// An argument value.
#[derive(Clone, PartialEq, Eq)]
enum Cell {
    Scalar(Scalar),
    Struct(Box<[Line]>),
    TensorMap(Box<TensorMap>),
}

impl Cell {
    fn new(value: &[u8], align: usize) -> Self {
        if value.len() <= size_of::<Scalar>() && align <= align_of::<Scalar>() {
            let mut scalar = Scalar::zeroed();
            scalar.0[..value.len()].copy_from_slice(value);
            return Self::Scalar(scalar);
        }
        let mut lines = vec![Line::zeroed(); value.len().div_ceil(size_of::<Line>())];
        bytemuck::cast_slice_mut(&mut lines)[..value.len()].copy_from_slice(value);
        Self::Struct(lines.into())
    }

    /// The value, and zeros after it.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Scalar(scalar) => &scalar.0,
            Self::Struct(lines) => bytemuck::cast_slice(lines),
            Self::TensorMap(map) => map.bytes(),
        }
    }
}

/// The argument values of a launch, in parameter order: buffers, scalars and structs by value, and
/// tensor maps.
///
/// ```
/// use retrograph_driver::KernelArguments;
///
/// let arguments = KernelArguments::new().address(0x7000_0000).u32(1024).f32(0.5).value(-3_i16);
/// assert_eq!(arguments.sizes(), [8, 4, 4, 2]);
/// assert_eq!(arguments.bytes(1), 1024_u32.to_le_bytes());
/// ```
#[derive(Clone, Default)]
pub struct KernelArguments {
    cells: Vec<Cell>,
    sizes: Vec<usize>,
    owners: Vec<Owner>,
}

impl KernelArguments {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value of any scalar type, or a struct by value. `T` must have the size and the layout
    /// of the parameter. A launch compares the sizes if they are known.
    ///
    /// ```
    /// use bytemuck::{Pod, Zeroable};
    /// use retrograph_driver::KernelArguments;
    ///
    /// /// As the kernel declares it.
    /// #[derive(Clone, Copy, Pod, Zeroable)]
    /// #[repr(C)]
    /// struct Scale {
    ///     factors: [f32; 3],
    ///     columns: u32,
    /// }
    ///
    /// let scale = Scale { factors: [0.5, 1.0, 2.0], columns: 64 };
    /// let arguments = KernelArguments::new().value(scale).value(1.0_f64);
    /// assert_eq!(arguments.sizes(), [16, 8]);
    /// ```
    ///
    /// A type without bytes, or one that needs an alignment of more than 128, does not compile: no
    /// parameter has such a type.
    ///
    /// ```compile_fail,E0080
    /// let arguments = retrograph_driver::KernelArguments::new().value(());
    /// ```
    pub fn value<T: Pod>(self, value: T) -> Self {
        const {
            assert!(size_of::<T>() > 0, "a parameter has bytes");
            assert!(align_of::<T>() <= align_of::<Line>(), "no parameter has this alignment");
        }
        self.value_bytes(bytemuck::bytes_of(&value), align_of::<T>())
    }

    /// Adds a value by its bytes, in the layout of the parameter, for types that are known only at
    /// run time.
    ///
    /// # Panics
    /// If there are no bytes, or `align` is not a power of two of at most 128.
    pub fn value_bytes(mut self, bytes: &[u8], align: usize) -> Self {
        assert!(!bytes.is_empty(), "a parameter has bytes");
        let is_known = align.is_power_of_two() && align <= align_of::<Line>();
        assert!(is_known, "no parameter has this alignment");
        self.cells.push(Cell::new(bytes, align));
        self.sizes.push(bytes.len());
        self
    }

    /// Keeps `owner` alive as [`KernelArguments::buffer`] does, for memory that the kernel accesses
    /// through a tensor map or a table of addresses.
    pub fn keep(mut self, owner: Owner) -> Self {
        self.owners.push(owner);
        self
    }

    /// Adds a device address. It keeps no memory alive.
    pub fn address(self, address: u64) -> Self {
        self.value(address)
    }

    /// Adds a `.u64`.
    pub fn u64(self, value: u64) -> Self {
        self.value(value)
    }

    /// Adds a `.u32`.
    pub fn u32(self, value: u32) -> Self {
        self.value(value)
    }

    /// Adds a `.f32`. Unlike for [`KernelArguments::value`], a literal needs no suffix.
    pub fn f32(self, value: f32) -> Self {
        self.value(value)
    }

    /// Adds a tensor map. It keeps no memory alive; see [`KernelArguments::keep`].
    pub fn tensor_map(mut self, map: TensorMap) -> Self {
        self.cells.push(Cell::TensorMap(Box::new(map)));
        self.sizes.push(map.bytes().len());
        self
    }

    /// The tensor map at `index`, for replacement; `None` if that argument is another value.
    ///
    /// # Panics
    /// If there is no such argument.
    pub fn tensor_map_mut(&mut self, index: usize) -> Option<&mut TensorMap> {
        match &mut self.cells[index] {
            Cell::TensorMap(map) => Some(map),
            Cell::Scalar(_) | Cell::Struct(_) => None,
        }
    }

    /// Replaces the address at `index`. The owner of a replaced buffer stays.
    ///
    /// # Panics
    /// If there is no such argument, or if it does not have eight bytes.
    pub fn set_address(&mut self, index: usize, address: u64) {
        assert_eq!(self.sizes[index], 8, "an address has eight bytes");
        self.cells[index] = Cell::new(&address.to_ne_bytes(), align_of::<u64>());
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The size of each argument in bytes.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// The bytes of argument `index`.
    ///
    /// # Panics
    /// If there is no such argument.
    pub fn bytes(&self, index: usize) -> &[u8] {
        &self.cells[index].bytes()[..self.sizes[index]]
    }

    /// The owners of the memory that the kernel accesses.
    pub(super) fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// A pointer to each value, as the driver expects. It only reads them during the call, which
    /// allows the cast from a shared reference.
    pub(crate) fn pointers(&self) -> Vec<*mut c_void> {
        self.cells.iter().map(|cell| cell.bytes().as_ptr().cast_mut().cast()).collect()
    }
}

impl fmt::Debug for KernelArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).map(|index| self.bytes(index))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Pod, Zeroable)]
    #[repr(C, align(64))]
    struct Wide([u8; 64]);

    #[test]
    fn every_value_is_at_a_multiple_of_its_alignment() {
        let map = TensorMap::UNUSED;
        let arguments = KernelArguments::new()
            .value(1_u8)
            .value(2_u128)
            .value(Wide([3; 64]))
            .value(4_i16)
            .value([5_u32; 64])
            .tensor_map(map)
            .value(6.0_f64);
        assert_eq!(arguments.sizes(), [1, 16, 64, 2, 256, 128, 8]);
        let moved = arguments.clone();
        drop(arguments);
        let pointers = moved.pointers();
        for (at, align) in [1, 16, 64, 2, 4, align_of_val(&map), 8].into_iter().enumerate() {
            assert!(pointers[at].addr().is_multiple_of(align), "{at}");
            assert_eq!(pointers[at].addr(), moved.bytes(at).as_ptr().addr());
        }
        assert_eq!(moved.bytes(2), [3; 64]);
        assert_eq!(moved.bytes(4), bytemuck::bytes_of(&[5_u32; 64]));
    }
}
