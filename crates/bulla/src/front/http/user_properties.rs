//! User properties in headers: `name;value;type`, several with commas between them.

use super::text::{decoded, header};
use bulla_amqp::Value;
use bulla_http::HeaderValue;

/// Properties of a message at most.
const PROPERTIES_MAX: usize = 256;

/// The properties that header lines say.
///
/// # Errors
/// What is wrong with them.
pub(super) fn read(lines: &[&str]) -> Result<Vec<(Value, Value)>, &'static str> {
    let mut properties = Vec::new();
    for line in lines {
        let mut rest = line.trim();
        while !rest.is_empty() {
            if properties.len() == PROPERTIES_MAX {
                return Err("has too many properties");
            }
            let (property, behind) = one(rest)?;
            properties.push(property);
            rest = behind.trim_start();
        }
    }
    Ok(properties)
}

/// The first property of a line, and what stands behind its comma.
fn one(line: &str) -> Result<((Value, Value), &str), &'static str> {
    const FORM: &str = "is name;value;type, and strings are between quotes";
    let (name, rest) = line.split_once(';').ok_or(FORM)?;
    let name = decoded(name.trim()).filter(|name| !name.is_empty()).ok_or(FORM)?;
    let rest = rest.trim_start();
    let (value, is_quoted, rest) = match rest.strip_prefix('"') {
        Some(quoted) => {
            let (value, rest) = quoted.split_once('"').ok_or(FORM)?;
            (value, true, rest.trim_start().strip_prefix(';').ok_or(FORM)?)
        }
        None => {
            let (value, rest) = rest.split_once(';').ok_or(FORM)?;
            (value.trim(), false, rest)
        }
    };
    let (sort, rest) = rest.split_once(',').unwrap_or((rest, ""));
    let value = match (sort.trim(), is_quoted) {
        ("string" | "qstring", true) => decoded(value).map(Value::String),
        ("boolean", false) => value.to_ascii_lowercase().parse().ok().map(Value::Bool),
        ("byte" | "i1", false) => value.parse().ok().map(Value::Byte),
        ("short" | "i2", false) => value.parse().ok().map(Value::Short),
        ("integer" | "i4", false) => value.parse().ok().map(Value::Int),
        ("long" | "i8", false) => value.parse().ok().map(Value::Long),
        ("float" | "r4", false) => value.parse().ok().map(Value::Float),
        ("double" | "r8", false) => value.parse().ok().map(Value::Double),
        _ => return Err(FORM),
    };
    Ok(((Value::String(name), value.ok_or("has a value that its type does not have")?), rest))
}

/// A header line for each property of a type that JMS has too; others are left out.
pub(super) fn lines(properties: &[(Value, Value)]) -> Vec<HeaderValue> {
    properties.iter().take(PROPERTIES_MAX).filter_map(line).collect()
}

fn line((name, value): &(Value, Value)) -> Option<HeaderValue> {
    let encoded = |text: &str| String::from_utf8_lossy(header(text).as_bytes()).replace(';', "%3B").replace('"', "%22");
    let (value, sort) = match value {
        Value::String(text) => (format!("\"{}\"", encoded(text)), "string"),
        Value::Bool(is) => (is.to_string(), "boolean"),
        Value::Byte(number) => (number.to_string(), "byte"),
        Value::Short(number) => (number.to_string(), "short"),
        Value::Int(number) => (number.to_string(), "integer"),
        Value::Long(number) => (number.to_string(), "long"),
        Value::Float(number) => (number.to_string(), "float"),
        Value::Double(number) => (number.to_string(), "double"),
        _ => return None,
    };
    HeaderValue::new(format!("{};{value};{sort}", encoded(name.as_str()?))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_come_back_as_they_were_said() {
        let line = r#"a;5;integer, b;"x; y, %22z%22";string ,c;TRUE;boolean,d;1.5;r8,e;-7;i1"#;
        let found = read(&[line, "f;9;long"]).unwrap();
        let text = Value::String("x; y, \"z\"".into());
        let expected = [Value::Int(5), text, Value::Bool(true), Value::Double(1.5), Value::Byte(-7), Value::Long(9)];
        assert_eq!(found.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>(), expected);
        let again = lines(&found);
        let again: Vec<&str> = again.iter().map(|line| std::str::from_utf8(line.as_bytes()).unwrap()).collect();
        assert_eq!(read(&again).unwrap(), found);
    }

    #[test]
    fn any_line_is_properties_that_come_back_or_is_refused() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut taken = 0;
        for _ in 0..50_000 {
            let mut any = |parts: &[&'static str]| parts[random.usize(..parts.len())];
            let odd = ["a", "b%20", ";", "\"", ",", " ", "%", ""];
            let mut line = String::new();
            for _ in 0..3 {
                let value = any(&["5", "-1", "true", "\"x, y\"", "\"\"", "1e9", "300", "%41"]);
                let sort = any(&["byte", "i4", "string", "double", "boolean", "i9"]);
                line += &format!(
                    "{}{};{value};{}{sort}{}",
                    any(&["a", "b", "c%3B"]),
                    any(&odd),
                    any(&["", " "]),
                    any(&[",", ", "])
                );
            }
            if let Ok(found) = read(&[&line]) {
                taken += usize::from(!found.is_empty());
                let again = lines(&found);
                let again: Vec<&str> = again.iter().map(|line| std::str::from_utf8(line.as_bytes()).unwrap()).collect();
                assert_eq!(read(&again).as_ref(), Ok(&found), "{line}");
            }
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn what_is_no_property_is_refused() {
        for line in
            ["a", "a;5", ";5;integer", "a;5;colour", "a;five;integer", "a;300;byte", "a;x;string", "a;\"x;string"]
        {
            assert!(read(&[line]).is_err(), "{line}");
        }
        let many = vec!["a;1;byte"; PROPERTIES_MAX + 1].join(",");
        assert_eq!(read(&[&many]), Err("has too many properties"));
    }
}
