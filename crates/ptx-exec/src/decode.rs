//! Decoding: from the syntax tree to typed operations.
//!
//! An instruction becomes one or a few [`Micro`] instructions over virtual registers, which
//! [`super::layout`] then places in the register file. Unsupported instructions are errors here;
//! none is approximated.

mod arithmetic;
mod atomic;
mod bulk;
mod call;
mod cast;
mod compare;
mod control;
mod emit;
mod float;
mod frames;
mod half;
mod limits;
mod matrix;
mod memory;
mod micro;
mod of_driver;
mod operand;
mod rare;
mod variables;
mod warpgroup;

use std::collections::{HashMap, HashSet};

use retrograph_ptx::ast::{self, Entry, Modifier, Module, Statement, Type};

use self::call::Frame;
use self::frames::{DecodedRegion, functions_with_frames};
pub(super) use self::micro::{Micro, RegisterInfo, VirtualRegister};
pub use self::of_driver::{GET_GRID_HANDLE, SYNCHRONIZE_GRID};
use self::variables::VariableLayout;
use super::async_copy::AsyncCopy;
use super::bulk::BulkInstruction;
use super::fault::DecodeError;
use super::matrix::Matrix;
use super::operation::{Control, Operation};
use super::program::{Access, Atomic, LaneOperation, Preset, Program, Site, Width};
use super::warpgroup::Warpgroup;

/// The reason why an instruction is not supported.
type Reason = String;

/// The state of decoding one entry.
struct Decoder<'a> {
    module: &'a Module,
    frame: Frame<'a>,
    /// The functions that may be recursive.
    recursive: HashSet<u32>,
    /// The functions with frames, and the region being decoded: one more than its index, or 0 for
    /// the kernel.
    regions: Vec<DecodedRegion>,
    region: u32,
    /// Inlined calls around the current instruction, and of the whole kernel.
    depth: u32,
    inlined: u32,
    variables: VariableLayout,
    /// Bytes of local memory in use, and their maximum.
    local: u64,
    local_peak: u64,
    registers: Vec<RegisterInfo>,
    presets: HashMap<Preset, VirtualRegister>,
    code: Vec<Micro>,
    labels: Vec<Option<u32>>,
    accesses: Vec<Access>,
    atomics: Vec<Atomic>,
    lanes: Vec<LaneOperation>,
    copies: Vec<AsyncCopy>,
    matrices: Vec<Matrix>,
    warpgroups: Vec<Warpgroup>,
    bulk: Vec<BulkInstruction>,
    communicates: bool,
    uses_heap: bool,
    uses_workspace: bool,
    site: Site,
    /// The register of the carry flag, once used.
    carry: Option<VirtualRegister>,
    guard: Option<(VirtualRegister, bool)>,
}

impl Program {
    /// Decodes the entry `name` of `module`. `address_of` returns the device addresses of the
    /// module's variables in global and constant memory.
    pub fn decode(
        module: &Module,
        name: &str,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Self, DecodeError> {
        let missing = || DecodeError::NoSuchEntry { entry: name.to_owned() };
        let entry = module.entry(name).ok_or_else(missing)?;
        let mut decoder =
            Decoder::new(module, entry, VariableLayout::new(module, entry, address_of));
        decoder.body()?;
        decoder.check_memory()?;
        Ok(decoder.finish())
    }
}

impl<'a> Decoder<'a> {
    fn new(module: &'a Module, entry: &'a Entry, variables: VariableLayout) -> Self {
        let local = variables.local_bytes;
        let mut decoder = Self {
            module,
            frame: Frame::kernel(entry),
            recursive: HashSet::new(),
            regions: Vec::new(),
            region: 0,
            depth: 0,
            inlined: 0,
            variables,
            local,
            local_peak: local,
            registers: Vec::new(),
            presets: HashMap::new(),
            code: Vec::new(),
            labels: Vec::new(),
            accesses: Vec::new(),
            atomics: Vec::new(),
            lanes: Vec::new(),
            copies: Vec::new(),
            matrices: Vec::new(),
            warpgroups: Vec::new(),
            bulk: Vec::new(),
            communicates: false,
            uses_heap: false,
            uses_workspace: false,
            site: Site::default(),
            carry: None,
            guard: None,
        };
        decoder.frame = decoder.open(Frame::kernel(entry));
        decoder
    }

    fn body(&mut self) -> Result<(), DecodeError> {
        let (called_by_pointer, recursive) = functions_with_frames(self.module, self.frame.entry);
        self.recursive = recursive;
        for function in called_by_pointer {
            self.region_of(function);
        }
        self.statements().map_err(|(statement, what)| self.refuse(statement, what))?;
        self.emit(Control::Exit {});
        self.decode_regions()?;
        self.resolve_labels()
    }

    /// Creates the error for a statement of the kernel.
    fn refuse(&self, statement: usize, what: Reason) -> DecodeError {
        let (module, entry) = (self.module, self.frame.entry);
        let kernel = entry.name.clone();
        let Some(Statement::Instruction(instruction)) = entry.body.get(statement) else {
            return DecodeError::Unsupported { kernel, line: 0, text: String::new(), what };
        };
        if let Some(variable) = self.variables.unplaced(instruction, module) {
            return DecodeError::UnplacedVariable { kernel, variable };
        }
        let text = super::site::text_of(module, entry, instruction);
        DecodeError::Unsupported { kernel, line: instruction.line.0, text, what }
    }

    fn instruction(&mut self, instruction: &'a ast::Instruction) -> Result<(), Reason> {
        use ast::Opcode as O;
        if let Some(guard) = instruction.guard {
            self.guard = Some((self.predicate(guard.predicate)?, guard.negated));
        }
        match instruction.opcode {
            O::Mov | O::Cvta => self.movement(instruction),
            O::Cvt => self.conversion(instruction),
            O::Ld | O::Ldu | O::St => self.access(instruction),
            O::Isspacep => self.space_test(instruction),
            // Caches and time are not simulated, and grids of a stream do not overlap.
            O::Prefetch | O::Prefetchu | O::Nanosleep | O::Griddepcontrol => Ok(()),
            O::Atom | O::Red => self.atomic(instruction),
            O::Setp | O::Set | O::Selp | O::Slct | O::Testp => self.comparison(instruction),
            O::Call => self.call(instruction),
            O::Bra
            | O::Brx
            | O::Ret
            | O::Exit
            | O::Trap
            | O::Brkpt
            | O::Bar
            | O::Barrier
            | O::Membar
            | O::Fence => self.control(instruction),
            O::Shfl | O::Vote | O::Activemask | O::Match | O::Redux | O::Elect => {
                self.warp_wide(instruction)
            }
            O::Cp => self.async_copy(instruction),
            O::Mbarrier => self.mbarrier(instruction),
            O::Setmaxnreg => self.set_registers(instruction),
            O::Mapa => self.map_address(instruction),
            O::Getctarank => self.rank_of_address(instruction),
            O::Wgmma => self.warpgroup(instruction),
            O::Ldmatrix | O::Stmatrix | O::Movmatrix | O::Mma | O::Wmma => self.matrix(instruction),
            _ if instruction.ty().is_some_and(half::is_half) => self.half(instruction),
            _ if instruction.ty().is_some_and(Type::is_float) => self.float(instruction),
            _ if rare::has_carry(instruction) => self.with_carry(instruction),
            O::Lop3 if instruction.operands.len() == 6 => self.lop3_with_predicate(instruction),
            _ if self.rare(instruction)? => Ok(()),
            _ => self.arithmetic(instruction),
        }
    }

    fn resolve_labels(&mut self) -> Result<(), DecodeError> {
        for index in 0..self.code.len() {
            let Operation::Control(Control::Branch { target: label }) = self.code[index].operation
            else {
                continue;
            };
            let Some(target) = self.labels.get(label as usize).copied().flatten() else {
                let statement = self.code[index].site.statement as usize;
                return Err(self.refuse(statement, "a branch to an undefined label".into()));
            };
            self.code[index].operation = Control::Branch { target }.into();
        }
        Ok(())
    }
}

/// The width of a register of a type.
fn width_of(ty: Type) -> Width {
    match ty.bits() {
        0 => Width::Predicate,
        64 => Width::Double,
        _ => Width::Word,
    }
}

/// Refuses modifiers other than `allowed`.
fn only(instruction: &ast::Instruction, allowed: &[Modifier]) -> Result<(), Reason> {
    match instruction.modifiers.iter().find(|modifier| !allowed.contains(modifier)) {
        Some(modifier) => Err(format!("the modifier .{modifier}")),
        None => Ok(()),
    }
}

/// The operands; there must be `N`.
fn operands<const N: usize>(instruction: &ast::Instruction) -> Result<&[ast::Operand; N], Reason> {
    let found = instruction.operands.len();
    let wrong = |_| format!("{found} operands, where {N} are expected");
    instruction.operands.as_slice().try_into().map_err(wrong)
}

/// The type, which must be present.
fn type_of(instruction: &ast::Instruction) -> Result<Type, Reason> {
    instruction.ty().ok_or_else(|| "an instruction without a type".to_owned())
}
