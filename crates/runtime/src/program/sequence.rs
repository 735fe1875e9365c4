//! The operations of a pass with their addresses and functions: the one value that eager launches,
//! hand-built graphs and captures all consume, so that none of them can miss an operation.

use retrograph_driver::{
    Function, KernelArguments, KernelLaunch, LaunchGeometry, Owner, Result, Stream,
};
use retrograph_kernels::{Argument, BufferArgument, Dispatch, Launch, SmTarget, images};

use super::bindings::{Bindings, External};
use super::control_ring::ControlRing;
use super::error::BuildError;
use super::library_call::BoundLibraryCall;
use super::memory::Memory;
use super::relocations::{InCommand, Relocations, Slot};
use crate::library::Cublas;
use crate::modules::{ImageKey, WarmModules};
use crate::pass::{BufferId, CustomLaunch, Edges, OpId, Operation, OperationKind, Pass, infer};

/// One operation as the driver takes it.
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
    /// Bytes that the operation moves: what it reads, and what it writes.
    pub(super) moved_bytes: usize,
    pub(super) pdl: Pdl,
}

/// Whether a command may start before the one kernel that it waits for has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pdl {
    /// It does not wait by itself, or reads ahead what the pass writes.
    Unsupported,
    /// It waits by itself, as kernels of the workspace do.
    Supported,
    /// Whoever wrote it promised that it waits by itself, and wants it to start early.
    Requested,
}

impl Step {
    /// Whether a library does it.
    pub(super) fn is_library_call(&self) -> bool {
        matches!(self.command, Command::Library(_))
    }
}

/// All commands in the order of the pass, without operations that launch nothing.
pub(super) struct Sequence {
    pub(super) steps: Vec<Step>,
    pub(super) edges: Edges,
    /// Operations that were left out, since their problem is empty.
    pub(super) skipped: usize,
    /// The position of the command that takes controls.
    pub(super) fetches_parameters: Option<usize>,
    /// Where the addresses of external buffers are.
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
            let (name, moved_bytes) = (operation.name().to_owned(), operation.moved_bytes());
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
            steps.push(Step { operation: at, name, command, moved_bytes, pdl });
            active.push(operation);
        }
        let accesses = active.iter().map(|operation| operation.accesses());
        let edges = infer(accesses, |range| memory.plan().place(range)).0;
        let skipped = pass.operations().len() - steps.len();
        Ok(Self { steps, edges, skipped, fetches_parameters, relocations })
    }

    /// Puts the address of an external buffer into all commands that name it, and returns their
    /// positions.
    pub(super) fn move_external(&mut self, to: &External) -> Vec<usize> {
        let relocations = self.relocations.of(to.id);
        for relocation in relocations {
            let ((position, slot), address) = (relocation.place, to.address + relocation.offset);
            match (&mut self.steps[position].command, slot) {
                (Command::Launch { arguments, .. }, Slot::Argument(at)) => {
                    arguments.set_address(at, address);
                }
                (Command::Copy { source, .. }, Slot::Source) => *source = address,
                (Command::Library(call), Slot::Range(at)) => call.move_range(at, address),
                (Command::Copy { target, .. } | Command::Fill { target, .. }, Slot::Target) => {
                    *target = address;
                }
                _ => unreachable!("links are made from the operations that commands do"),
            }
        }
        relocations.iter().map(|relocation| relocation.place.0).collect()
    }

    /// Lets another handle of cuBLAS do all products. Gives back the one before, and the positions
    /// of the products, unless there are none or it is the same.
    pub(super) fn use_handle(&mut self, cublas: &Cublas) -> Option<(Cublas, Vec<usize>)> {
        let change = |(at, step): (usize, &mut Step)| match &mut step.command {
            Command::Library(call) => Some((call.use_handle(cublas)?, at)),
            _ => None,
        };
        // All products of a program are done by one handle.
        let (mut before, products): (Vec<_>, Vec<_>) =
            self.steps.iter_mut().enumerate().filter_map(change).unzip();
        Some((before.pop()?, products))
    }

    /// What keeps functions and libraries alive.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let owners = self.steps.iter().filter_map(|step| match &step.command {
            Command::Launch { function, .. } => Some(function.owner()),
            Command::Library(call) => call.owner(),
            Command::Copy { .. } | Command::Fill { .. } => None,
        });
        owners.collect()
    }

    /// The operations that are work of a library.
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
    /// What the addresses name must stay alive until the command has run, in a capture until the
    /// last replay has, and nothing else may conflict with it meanwhile.
    pub(super) unsafe fn enqueue(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Launch { function, geometry, arguments } => {
                let launch = KernelLaunch { function, geometry: *geometry, arguments };
                // SAFETY: the constructors of the launch checked its lengths (or the caller of
                // `Pass::custom` did), the pass its slices, and our caller promises the rest.
                unsafe { stream.launch(&launch) }
            }
            Self::Copy { target, source, bytes } => {
                // SAFETY: the pass checked that both ranges lie in their buffers and do not
                // overlap, and our caller promises the rest.
                unsafe { stream.copy_on_device(*target, *source, *bytes) }
            }
            Self::Fill { target, pattern, words } => {
                // SAFETY: as above.
                unsafe { stream.fill_u32(*target, *pattern, *words) }
            }
            // SAFETY: the caller of `Pass::library` promised what the work touches, or the
            // description of a product checked its lengths; our caller promises the rest.
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

/// What operations become commands by.
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
                let arguments = arguments_at(&launch.arguments, place, || 0);
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
        let arguments = arguments_at(arguments, |range| self.memory.address(range), table);
        self.launch(operation, &entry, arguments)
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

/// The values of arguments, with the addresses of ranges and of one table after the other.
fn arguments_at<B>(
    arguments: &[Argument<B>],
    address: impl Fn(&BufferArgument<B>) -> u64,
    mut table: impl FnMut() -> u64,
) -> KernelArguments {
    arguments.iter().fold(KernelArguments::new(), |values, argument| match argument {
        Argument::Buffer(range) => values.address(address(range)),
        Argument::Null => values.address(0),
        Argument::U32(value) => values.u32(*value),
        Argument::U64(value) => values.u64(*value),
        Argument::F32(bits) => values.u32(*bits),
        Argument::Table(_) => values.address(table()),
    })
}

fn count_tables(operation: &Operation) -> usize {
    let tables = |argument: &&Argument<BufferId>| matches!(argument, Argument::Table(_));
    operation.arguments().iter().filter(tables).count()
}
