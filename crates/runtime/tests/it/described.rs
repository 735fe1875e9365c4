//! Random passes for property tests, described by plain numbers so that proptest can shrink them.

use proptest::prelude::*;
use retrograph_kernels::{
    Access, Argument, BufferArgument, Cell, Dispatch, Kernel, Launch, Parameter, ParameterKind,
    Problem,
};
use retrograph_runtime::{Pass, PassError, Slice};

/// A kernel that is never launched. Its table declares its accesses.
pub(crate) static ANY: Kernel = Kernel {
    name: "any",
    image: "any",
    parameters: &[Parameter { name: "table", kind: ParameterKind::Pointer }],
    entries: &["any"],
    dispatch: |_, _| {
        Some(Dispatch {
            entry: "any",
            grid: [1; 3],
            block: [1; 3],
            shared_bytes: 0,
            persistent: None,
        })
    },
};

/// An access to a range of a buffer, both modulo their counts.
pub(crate) type DescribedAccess = (usize, u8, usize, usize);

/// Sizes of the buffers in elements, and the accesses of each operation.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) sizes: Vec<usize>,
    pub(crate) operations: Vec<Vec<DescribedAccess>>,
}

/// Passes of up to `operations` operations over up to ten buffers.
pub(crate) fn described(operations: usize) -> impl Strategy<Value = Described> {
    let access = (0usize..10, 0u8..3, 0usize..300, 1usize..300);
    let sizes = prop::collection::vec(1usize..300, 1..10);
    let list = prop::collection::vec(prop::collection::vec(access, 1..4), 0..operations);
    (sizes, list).prop_map(|(sizes, operations)| Described { sizes, operations })
}

impl Described {
    /// The pass without refused operations, which other tests cover. Every third buffer is
    /// external.
    pub(crate) fn pass(&self) -> Pass {
        let mut pass = Pass::new("described");
        let sizes = self.sizes.iter().enumerate();
        let slices: Vec<Slice<f32>> = sizes
            .map(|(at, &len)| match at % 3 {
                2 => pass.external(format!("external {at}"), len),
                _ => pass.transient(format!("transient {at}"), len),
            })
            .collect();
        for accesses in &self.operations {
            let _ = launch_any(&mut pass, &slices, accesses);
        }
        pass
    }
}

fn launch_any(
    pass: &mut Pass,
    slices: &[Slice<f32>],
    accesses: &[DescribedAccess],
) -> Result<(), PassError> {
    let cells = accesses.iter().map(|&(buffer, access, start, len)| {
        let slice = slices[buffer % slices.len()];
        let start = start % slice.len();
        let slice = slice.slice(start..(start + len).min(slice.len()));
        let access = [Access::Read, Access::Write, Access::ReadWrite][usize::from(access)];
        Cell::Address(BufferArgument::new(slice, access))
    });
    let arguments = vec![Argument::Table(cells.collect())];
    // SAFETY: the kernel is never launched.
    let launch = unsafe { Launch::new_unchecked(&ANY, Problem::Items(0), arguments) };
    pass.launch(launch).map(drop)
}
