//! Times as people write them in options: a number and its unit.

/// Milliseconds, as `500ms`, `30s`, `2m` or `1h`; a number alone is of them.
pub(super) fn millis(text: &str) -> Result<u64, String> {
    parse(
        text,
        &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)],
    )
    .ok_or_else(|| {
        format!("`{text}` is not a time; write for example 500ms, 30s or 2m, or milliseconds alone")
    })
}

/// Microseconds, as `800us`, `5ms` or `1s`; a number alone is of them.
pub(super) fn micros(text: &str) -> Result<u64, String> {
    parse(text, &[("us", 1), ("ms", 1_000), ("s", 1_000_000)]).ok_or_else(|| {
        format!("`{text}` is not a time; write for example 800us or 5ms, or microseconds alone")
    })
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let each = match unit.trim_start() {
        "" => 1,
        unit => units.iter().find(|(name, _)| *name == unit)?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_or_the_one_of_their_option() {
        for (text, expected) in [
            ("0", Some(0)),
            ("60000", Some(60_000)),
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("30 s", Some(30_000)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("", None),
            ("s", None),
            ("-1", None),
            ("1.5s", None),
            ("30us", None),
            ("30S", None),
            ("30\u{fc}", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(millis(text).ok(), expected, "{text}");
        }
        assert_eq!(micros("5ms"), Ok(5_000));
        assert_eq!(micros("5"), Ok(5));
        assert!(micros("5m").is_err_and(|wrong| wrong.contains("5ms")));
    }
}
