//! The one way in which this crate calls the driver.

/// Calls a required function of the driver table and turns its code into a result. The first
/// argument is whatever has `table()` and `check(name, code)`: a driver or a context.
macro_rules! call {
    ($owner:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let code = ($owner.table().$function)($($argument),*);
        $owner.check(stringify!($function), code)
    }};
}
