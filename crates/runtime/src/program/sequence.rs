//! The commands of a program: operations with addresses and functions. Eager launches, hand-built
//! graphs and captures all consume this one value, so none of them can miss an operation.

use retrograph_driver::{
    Driver, Function, KernelArguments, KernelLaunch, LaunchGeometry, Owner, Result, Stream,
    TensorMap, TensorMapLayout, TensorMapSwizzle, TensorMapType,
};
use retrograph_kernels::{
    Access, Argument, BufferArgument, DType, Dispatch, Launch, SmTarget, TensorMapArgument, images,
};

use super::bindings::{Bindings, External};
use super::control_ring::ControlRing;
use super::error::BuildError;
use super::library_call::BoundLibraryCall;
use super::memory::Memory;
use super::relocations::{InCommand, Relocations, Slot};
use crate::library::Cublas;
use crate::modules::{ImageKey, WarmModules};
use crate::pass::{
    BufferAccess, BufferId, CustomLaunch, Edges, OpId, Operation, OperationKind, Pass, infer,
};

/// An operation as the driver accepts it.
pub(super) enum Command {
    Launch { function: Function, geometry: LaunchGeometry, arguments: KernelArguments },
    Copy { target: u64, source: u64, bytes: usize },
    Fill { target: u64, pattern: u32, words: usize },
    Library(BoundLibraryCall),
}

/// A command with the name of its operation.
pub(super) struct Step {
    /// The position of the operation in the pass.
    pub(super) operation: OpId,
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) pdl: Pdl,
}

/// Whether a command may use programmatic dependent launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pdl {
    /// No: it does not execute `griddepcontrol.wait`, or reads ahead what the pass writes.
    Unsupported,
    /// Yes, as for kernels of the workspace.
    Supported,
    /// Yes, and its author requested it.
    Requested,
}

impl Step {
    /// Whether it is a library call.
    pub(super) fn is_library_call(&self) -> bool {
        matches!(self.command, Command::Library(_))
    }
}

/// All commands in the order of the pass, without empty operations.
pub(super) struct Sequence {
    pub(super) steps: Vec<Step>,
    pub(super) edges: Edges,
    /// Number of empty operations.
    pub(super) skipped: usize,
    /// The position of the command that fetches the controls.
    pub(super) fetches_parameters: Option<usize>,
    /// The places that hold addresses of external buffers.
    relocations: Relocations<InCommand>,
}

impl Sequence {
    pub(super) fn new(pass: &Pass, resolver: &Resolver<'_>) -> Result<Self, BuildError> {
        let (memory, target) = (resolver.memory, resolver.target());
        let (mut steps, mut active, mut tables) = (Vec::new(), Vec::new(), 0);
        let mut fetches_parameters = None;
        let mut relocations = Relocations::new(pass);
        for (at, operation) in pass.operations().iter().enumerate() {
            let first_table = tables;
            tables += count_tables(operation);
            if operation.is_empty(target) {
                continue;
            }
            relocations.add_operation(operation, steps.len());
            let command = resolver.command(operation, first_table)?;
            let name = operation.name().to_owned();
            let pdl = match operation.kind {
                OperationKind::FetchStepParameters | OperationKind::Launch(_)
                    if images::supports_pdl(target) && pass.never_writes_read_ahead(operation) =>
                {
                    Pdl::Supported
                }
                _ if operation.pdl => Pdl::Requested,
                _ => Pdl::Unsupported,
            };
            if operation.kind == OperationKind::FetchStepParameters {
                fetches_parameters = Some(steps.len());
            }
            let at = OpId(at as u32);
            steps.push(Step { operation: at, name, command, pdl });
            active.push(operation);
        }
        let accesses = active.iter().map(|operation| operation.accesses());
        let edges = infer(accesses, |range| memory.plan().place(range)).0;
        let skipped = pass.operations().len() - steps.len();
        Ok(Self { steps, edges, skipped, fetches_parameters, relocations })
    }

    /// Patches the address of an external buffer in all commands that use it. Returns their
    /// positions, and the first failure to patch a tensor map.
    pub(super) fn move_external(
        &mut self,
        driver: &Driver,
        to: &External,
    ) -> (Vec<usize>, Result<()>) {
        let (relocations, mut outcome) = (self.relocations.of(to.id), Ok(()));
        for relocation in relocations {
            let ((position, slot), address) = (relocation.place, to.address + relocation.offset);
            match (&mut self.steps[position].command, slot) {
                (Command::Launch { arguments, .. }, Slot::Argument(at)) => {
                    arguments.set_address(at, address);
                }
                (Command::Launch { arguments, .. }, Slot::TensorMap(at)) => {
                    let map = arguments.tensor_map_mut(at).expect("the relocation is of a map");
                    match map.at(driver, address) {
                        Ok(moved) => *map = moved,
                        Err(error) => outcome = outcome.and(Err(error)),
                    }
                }
                (Command::Copy { source, .. }, Slot::Source) => *source = address,
                (Command::Library(call), Slot::Range(at)) => call.move_range(at, address),
                (Command::Copy { target, .. } | Command::Fill { target, .. }, Slot::Target) => {
                    *target = address;
                }
                _ => unreachable!("links are made from the operations that commands do"),
            }
        }
        (relocations.iter().map(|relocation| relocation.place.0).collect(), outcome)
    }

    /// Replaces the cuBLAS handle of all products. Returns the previous one and the positions of
    /// the products, unless there are none or the handle is the same.
    pub(super) fn use_handle(&mut self, cublas: &Cublas) -> Option<(Cublas, Vec<usize>)> {
        let change = |(at, step): (usize, &mut Step)| match &mut step.command {
            Command::Library(call) => Some((call.use_handle(cublas)?, at)),
            _ => None,
        };
        // All products of a program use one handle.
        let (mut before, products): (Vec<_>, Vec<_>) =
            self.steps.iter_mut().enumerate().filter_map(change).unzip();
        Some((before.pop()?, products))
    }

    /// Keeps functions and libraries alive.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let owners = self.steps.iter().filter_map(|step| match &step.command {
            Command::Launch { function, .. } => Some(function.owner()),
            Command::Library(call) => call.owner(),
            Command::Copy { .. } | Command::Fill { .. } => None,
        });
        owners.collect()
    }

    /// The library calls, with their operation names.
    pub(super) fn library_calls(&self) -> impl Iterator<Item = (&str, &BoundLibraryCall)> {
        self.steps.iter().filter_map(|step| match &step.command {
            Command::Library(call) => Some((step.name.as_str(), call)),
            _ => None,
        })
    }
}

impl Command {
    /// Enqueues the command on `stream`.
    ///
    /// # Safety
    /// The memory at the addresses must stay alive until the command has finished (in a capture,
    /// the last replay), and no other work may conflict with it meanwhile.
    pub(super) unsafe fn enqueue(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Launch { function, geometry, arguments } => {
                let launch = KernelLaunch { function, geometry: *geometry, arguments };
                // SAFETY: the launch's constructor (or the caller of `Pass::custom`) checked its
                // lengths, the pass its slices, and the caller upholds the rest.
                unsafe { stream.launch(&launch) }
            }
            Self::Copy { target, source, bytes } => {
                // SAFETY: the pass checked that both ranges are in their buffers and do not
                // overlap, and the caller upholds the rest.
                unsafe { stream.copy_on_device(*target, *source, *bytes) }
            }
            Self::Fill { target, pattern, words } => {
                // SAFETY: as above.
                unsafe { stream.fill_u32(*target, *pattern, *words) }
            }
            // SAFETY: the caller of `Pass::library` promised what the call accesses, or the
            // description of a product checked its lengths; the caller upholds the rest.
            Self::Library(call) => unsafe { call.enqueue(stream) },
        }
    }
}

/// An entry point of an image, with the geometry of its launch.
struct Entry<'a> {
    image: ImageKey,
    name: &'a str,
    geometry: LaunchGeometry,
}

impl<'a> Entry<'a> {
    fn of_launch<B>(launch: &Launch<B>, target: SmTarget) -> Self {
        let dispatch = launch.dispatch(target);
        let image = ImageKey::from(launch.kernel.image);
        Self { image, name: dispatch.entry, geometry: geometry_of(&dispatch) }
    }

    fn of_custom(launch: &'a CustomLaunch) -> Self {
        let (grid, block, shared_bytes) = (launch.grid, launch.block, launch.shared_bytes);
        let geometry = LaunchGeometry { grid, block, shared_bytes };
        Self { image: ImageKey::from(&launch.image), name: &launch.entry, geometry }
    }
}

fn geometry_of(dispatch: &Dispatch) -> LaunchGeometry {
    let &Dispatch { grid, block, shared_bytes, .. } = dispatch;
    LaunchGeometry { grid, block, shared_bytes }
}

/// Resolves operations to commands.
pub(super) struct Resolver<'a> {
    pub(super) modules: &'a WarmModules,
    pub(super) memory: &'a Memory,
    pub(super) bindings: &'a Bindings,
    pub(super) ring: Option<&'a ControlRing>,
}

impl Resolver<'_> {
    fn target(&self) -> SmTarget {
        self.modules.target()
    }

    fn command(&self, operation: &Operation, first_table: usize) -> Result<Command, BuildError> {
        let (entry, arguments) = match operation.kind() {
            OperationKind::Copy { source, target } => {
                let bytes = target.bytes.len();
                let (target, source) = (self.memory.address(target), self.memory.address(source));
                return Ok(Command::Copy { target, source, bytes });
            }
            OperationKind::Fill { target, pattern } => {
                let words = target.bytes.len() / 4;
                let target = self.memory.address(target);
                return Ok(Command::Fill { target, pattern: *pattern, words });
            }
            OperationKind::Library(call) => {
                let call = BoundLibraryCall::new(operation, call, self.bindings, self.memory)?;
                return Ok(Command::Library(call));
            }
            OperationKind::FetchStepParameters => {
                let ring = self.ring.expect("there are controls, and so a ring");
                let launch = self.memory.fetch_launch(ring)?;
                let place = |range: &BufferArgument<u64>| range.buffer + range.bytes.start as u64;
                let unused = |_: &TensorMapArgument<u64>| Ok(TensorMap::UNUSED);
                let arguments = arguments_at(&launch.arguments, place, || 0, unused)?;
                let entry = Entry::of_launch(&launch, self.target());
                return self.launch(operation, &entry, arguments);
            }
            OperationKind::Launch(launch) => {
                (Entry::of_launch(launch, self.target()), &launch.arguments)
            }
            OperationKind::Custom(launch) => (Entry::of_custom(launch), &launch.arguments),
        };
        let mut tables = first_table..;
        let table = || tables.next().map_or(0, |table| self.memory.table_address(table));
        let address = |range: &BufferAccess| self.memory.address(range);
        let arguments = arguments_at(arguments, address, table, |map| self.tensor_map(map))?;
        self.launch(operation, &entry, arguments)
    }

    /// The encoded tensor map, if the target has TMA.
    fn tensor_map(&self, map: &TensorMapArgument<BufferId>) -> Result<TensorMap> {
        if !self.target().features().tma {
            return Ok(TensorMap::UNUSED);
        }
        let range =
            BufferArgument { buffer: map.buffer, bytes: map.bytes.clone(), access: Access::Read };
        let dtype = match map.dtype {
            DType::Bf16 => TensorMapType::Bf16,
            DType::F32 => TensorMapType::F32,
            other => unreachable!("no kernel copies boxes of {other}"),
        };
        let [width, height] = map.box_sizes;
        let layout = TensorMapLayout {
            dtype,
            sizes: &map.sizes,
            strides: &map.strides,
            box_sizes: &[width, height, 1],
            swizzle: TensorMapSwizzle::Bytes128,
        };
        TensorMap::tiled(self.modules.context().driver(), self.memory.address(&range), &layout)
    }

    fn launch(
        &self,
        operation: &Operation,
        entry: &Entry<'_>,
        arguments: KernelArguments,
    ) -> Result<Command, BuildError> {
        let operation = operation.name().to_owned();
        let function = self
            .modules
            .function(entry.image.clone(), entry.name)
            .map_err(|cause| BuildError::Cold { operation, cause })?;
        Ok(Command::Launch { function, geometry: entry.geometry, arguments })
    }
}

/// Argument values, with the addresses of ranges and of consecutive tables, and tensor maps.
fn arguments_at<B>(
    arguments: &[Argument<B>],
    address: impl Fn(&BufferArgument<B>) -> u64,
    mut table: impl FnMut() -> u64,
    tensor_map: impl Fn(&TensorMapArgument<B>) -> Result<TensorMap>,
) -> Result<KernelArguments> {
    arguments.iter().try_fold(KernelArguments::new(), |values, argument| {
        Ok(match argument {
            Argument::Buffer(range) => values.address(address(range)),
            Argument::Null => values.address(0),
            Argument::U32(value) => values.u32(*value),
            Argument::U64(value) => values.u64(*value),
            Argument::F32(bits) => values.u32(*bits),
            Argument::Table(_) => values.address(table()),
            Argument::TensorMap(None) => values.tensor_map(TensorMap::UNUSED),
            Argument::TensorMap(Some(map)) => values.tensor_map(tensor_map(map)?),
        })
    })
}

fn count_tables(operation: &Operation) -> usize {
    let tables = |argument: &&Argument<BufferId>| matches!(argument, Argument::Table(_));
    operation.arguments().iter().filter(tables).count()
}
