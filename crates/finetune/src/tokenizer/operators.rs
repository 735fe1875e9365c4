//! Metered operators, filters and methods of chat templates. Each counts the bytes it creates.

use std::sync::LazyLock;

use minijinja::value::{Rest, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Expression, State, Value, context, filters};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::meter::{VALUE as VALUE_BYTES, exceed, spend, spend_value, storable};
use super::rewrite::{ATTRIBUTE, OPERATORS, SLICE, VALUE};

/// Maximum width or count of the functions in [`SIZED`], and the digits of a larger one.
const COUNT: i64 = 9_999;
const DIGITS: usize = 5;
/// Filters whose arguments determine the size of the result.
const SIZED: [&str; 5] = ["indent", "batch", "slice", "tojson", "round"];
/// Filters and methods whose cost does not depend on the size of the value.
const CHEAP: [&str; 13] = [
    "length", "count", "first", "last", "default", "d", "int", "float", "abs", "round", "bool",
    "attr", "get",
];
/// Filters and methods that create a value per character or item.
const DIVIDING: [&str; 6] = ["list", "split", "lines", "splitlines", "batch", "slice"];

/// Evaluates the operators without a meter.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);

type Plain = Expression<'static, 'static>;

/// Adds the functions of operators. Replaces filters and methods.
pub(super) fn install(environment: &mut Environment<'_>) {
    for (name, expression) in OPERATORS {
        let plain = plain(expression);
        let operator = move |a: Value, b: Value| operator(name, &a, &b, &plain);
        environment.add_function(name, operator);
    }
    let slice = plain("a[b:c:d]");
    environment.add_function(SLICE, move |a: Value, b: Value, c: Value, d: Value| {
        spend(VALUE_BYTES + length(&a))?;
        match i64::try_from(d.clone()) {
            Ok(step) if step < 0 => backwards(&a, &b, &c, step),
            _ => evaluated(&slice, context! { a, b, c, d }),
        }
    });
    environment.add_function(VALUE, |value: Value| spend_value(&value).map(|()| value));
    environment.add_function(ATTRIBUTE, storable);
    // These functions print the state of the template engine.
    environment.remove_global("debug");
    environment.remove_filter("pprint");
    environment.set_formatter(|output, state, value| {
        spend_value(value)?;
        minijinja::escape_formatter(output, state, value)
    });
    environment.set_unknown_method_callback(|state, value, method, arguments| {
        let all: Vec<Value> = std::iter::once(value).chain(arguments).cloned().collect();
        before(method, &all)?;
        after(method, unknown_method_callback(state, value, method, arguments)?)
    });
    for name in ["eq", "equalto", "=="] {
        environment.add_test(name, |a: Value, b: Value| compared(&a, &b).map(|()| a == b));
    }
    for name in ["ne", "!="] {
        environment.add_test(name, |a: Value, b: Value| compared(&a, &b).map(|()| a != b));
    }
    install_filters(environment);
}

/// Replaces the filters. The originals get names with a space, which templates cannot use.
fn install_filters(environment: &mut Environment<'_>) {
    macro_rules! metered {
        ($($name:ident)*) => {$(
            environment.add_filter(concat!("plain ", stringify!($name)), filters::$name);
            metered(environment, stringify!($name), concat!("plain ", stringify!($name)));
        )*};
    }
    metered! {
        abs attr batch bool capitalize chain default dictsort escape first float format groupby
        indent int items join last length lines list lower map max min reject rejectattr replace
        reverse round safe select selectattr slice sort split string sum title trim unique upper
        zip
    }
    environment.add_filter("plain tojson", super::json::to_json);
    metered(environment, "tojson", "plain tojson");
    for (name, plain) in [("count", "plain length"), ("d", "plain default"), ("e", "plain escape")]
    {
        metered(environment, name, plain);
    }
}

fn metered(environment: &mut Environment<'_>, name: &'static str, plain: &'static str) {
    let filter = move |state: &State<'_, '_>, arguments: Rest<Value>| {
        before(name, &arguments)?;
        after(name, state.apply_filter(plain, &arguments)?)
    };
    environment.add_filter(name, filter);
}

/// Counts the arguments of a filter or method, and the result that they determine.
fn before(name: &str, arguments: &[Value]) -> Result<(), Error> {
    if CHEAP.contains(&name) {
        return spend(VALUE_BYTES);
    }
    arguments.iter().try_for_each(spend_value)?;
    let text = |index: usize| arguments.get(index).and_then(Value::as_str).unwrap_or_default();
    let lengths = |index: usize| arguments.get(index).map_or(0, length);
    let largest = arguments.iter().skip(1).map(largest).max().unwrap_or(0);
    if SIZED.contains(&name) && largest > COUNT {
        return Err(exceed("a width or a count is too large"));
    }
    if DIVIDING.contains(&name) {
        spend(lengths(0).saturating_mul(VALUE_BYTES))?;
    }
    let count = usize::try_from(largest).unwrap_or(0);
    spend(match name {
        "indent" => (text(0).matches('\n').count() + 1).saturating_mul(count),
        "batch" | "slice" => count.saturating_mul(VALUE_BYTES),
        "join" => (lengths(0) + 1).saturating_mul(lengths(1) + 1),
        "replace" => text(0).matches(text(1)).count().saturating_mul(text(2).len()),
        "format" => return widths(text(0), largest),
        _ => 0,
    })
}

/// Checks the widths in a format.
fn widths(format: &str, largest: i64) -> Result<(), Error> {
    let long = |digits: &str| digits.len() >= DIGITS;
    let digits = format.split(|one: char| !one.is_ascii_digit()).any(long);
    // Arguments are widths if the format has stars or names.
    let given = largest > COUNT && format.contains(['*', '{']);
    if digits || given { Err(exceed("a width or a count is too large")) } else { Ok(()) }
}

fn after(name: &str, made: Value) -> Result<Value, Error> {
    if !CHEAP.contains(&name) {
        spend_value(&made)?;
    }
    Ok(made)
}

/// Returns the largest absolute integer of a value or of its keyword arguments.
fn largest(value: &Value) -> i64 {
    let number = |value: &Value| match value.is_integer() {
        true => i64::try_from(value.clone()).unwrap_or(i64::MAX).saturating_abs(),
        false => 0,
    };
    if value.kind() != ValueKind::Map {
        return number(value);
    }
    let keys = value.try_iter().into_iter().flatten();
    keys.filter_map(|key| value.get_item(&key).ok()).map(|one| number(&one)).max().unwrap_or(0)
}

/// Returns the bytes of a text, or the number of items.
fn length(value: &Value) -> usize {
    value.as_str().map(str::len).or_else(|| value.len()).unwrap_or(0)
}

/// Evaluates `value[start:stop:step]` with a negative `step`, as in Python. `minijinja` panics on
/// an empty value, and includes the item at `stop` 0, unlike Python.
fn backwards(value: &Value, start: &Value, stop: &Value, step: i64) -> Result<Value, Error> {
    let items: Vec<Value> = match value.as_str() {
        Some(text) => text.chars().map(Value::from).collect(),
        None if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) => {
            value.try_iter()?.collect()
        }
        None if value.is_undefined() || value.is_none() => Vec::new(),
        None => {
            let reason = format!("{} cannot be sliced", value.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
    };
    spend(VALUE_BYTES * items.len())?;
    let count = items.len() as i64;
    let place = |end: &Value, default: i64| -> Result<i64, Error> {
        if end.is_none() {
            return Ok(default);
        }
        let place = i64::try_from(end.clone())?;
        let place = if place < 0 { place.saturating_add(count) } else { place };
        Ok(place.clamp(-1, count - 1))
    };
    let (start, stop) = (place(start, count - 1)?, place(stop, -1)?);
    let places = std::iter::successors(Some(start), |place| place.checked_add(step));
    let taken = places.take_while(|place| *place > stop);
    let taken = taken.map(|place| items[place as usize].clone());
    Ok(match value.as_str() {
        Some(_) => Value::from(taken.map(|item| item.to_string()).collect::<String>()),
        None => Value::from(taken.collect::<Vec<_>>()),
    })
}

fn container(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Map | ValueKind::Seq | ValueKind::Iterable)
}

/// Counts a comparison.
fn compared(a: &Value, b: &Value) -> Result<(), Error> {
    if container(a) && container(b) {
        spend_value(a)?;
        return spend_value(b);
    }
    spend(VALUE_BYTES + length(a).min(length(b)))
}

/// Evaluates an operator.
fn operator(name: &str, a: &Value, b: &Value, plain: &Plain) -> Result<Value, Error> {
    match name {
        "==" | "!=" | "<" | "<=" | ">" | ">=" => compared(a, b)?,
        "in" if container(b) => {
            spend_value(a)?;
            spend(length(b).saturating_mul(VALUE_BYTES + length(a)))?;
        }
        "in" => spend(VALUE_BYTES + length(b))?,
        "~" => {
            spend_value(a)?;
            spend_value(b)?;
            return Ok(format!("{a}{b}").into());
        }
        "*" => spend(repeated(a, b).max(repeated(b, a)))?,
        _ => {
            let unit = if container(a) { VALUE_BYTES } else { 1 };
            spend((length(a) + length(b)).saturating_mul(unit) + VALUE_BYTES)?;
        }
    }
    match (name, a.as_str(), b.as_str()) {
        ("==", Some(a), Some(b)) => Ok((a == b).into()),
        ("!=", Some(a), Some(b)) => Ok((a != b).into()),
        ("+", Some(a), Some(b)) => Ok([a, b].concat().into()),
        _ => evaluated(plain, context! { a, b }),
    }
}

/// Returns the bytes of a repeated value.
fn repeated(value: &Value, count: &Value) -> usize {
    let count = count.as_usize().unwrap_or(0);
    let unit = if container(value) { VALUE_BYTES } else { 1 };
    length(value).saturating_mul(count).saturating_mul(unit)
}

fn plain(expression: &'static str) -> Plain {
    PLAIN.compile_expression(expression).expect("a constant expression compiles")
}

/// Evaluates an expression. Its error has no line; the template adds its own.
fn evaluated(expression: &Plain, values: Value) -> Result<Value, Error> {
    expression.eval(values).map_err(|error| {
        let detail = error.detail().map(str::to_owned);
        match detail {
            Some(detail) => Error::new(error.kind(), detail),
            None => Error::from(error.kind()),
        }
    })
}

/// Returns the error of a refused template.
pub(super) fn refused(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::SyntaxError, reason.into())
}
