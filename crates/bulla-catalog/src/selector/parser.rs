//! From words to an expression (JMS 3.1, section 3.8.1): precedence is NOT, then AND, then OR; comparisons, then sums,
//! then products, then signs.

use super::expression::{Comparison, Expression, Operation, Pattern};
use super::fields::Wanted;
use super::lexer::{Keyword, Kind, Sign, Token, tokens};
use super::{DEPTH_MAX, SelectorError, TERMS_MAX};

/// What an expression may be used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Type {
    Condition,
    Number,
    Text,
    /// A field: only the message knows.
    Any,
}

struct Parsed {
    expression: Expression,
    is: Type,
    at: usize,
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    depth: usize,
    terms: usize,
    wanted: Wanted,
}

/// Parses a selector and says which fields it looks at.
pub(super) fn parse(text: &str) -> Result<(Expression, Wanted), SelectorError> {
    let tokens = tokens(text)?;
    let mut parser = Parser { text, tokens, next: 0, depth: 0, terms: 0, wanted: Wanted::default() };
    let parsed = parser.or()?;
    if *parser.peek() != Kind::End {
        return Err(parser.unexpected("the end or an operator"));
    }
    let expression = parser.condition(parsed)?;
    Ok((expression, parser.wanted))
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &Kind<'a> {
        self.tokens.get(self.next).map_or(&Kind::End, |token| &token.kind)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.text.len(), |token| token.at)
    }

    fn error(&self, at: usize, what: impl Into<String>) -> SelectorError {
        SelectorError::new(self.text, at, what)
    }

    fn unexpected(&self, wanted: &str) -> SelectorError {
        self.error(self.at(), format!("expected {wanted}, found {}", self.peek().describe()))
    }

    fn keyword(&mut self, keyword: Keyword) -> bool {
        let is = *self.peek() == Kind::Keyword(keyword);
        self.next += usize::from(is);
        is
    }

    fn sign(&mut self, sign: Sign) -> bool {
        let is = *self.peek() == Kind::Sign(sign);
        self.next += usize::from(is);
        is
    }

    fn expect_sign(&mut self, sign: Sign) -> Result<(), SelectorError> {
        if self.sign(sign) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", sign.text()))) }
    }

    /// Every step down, and every operand, counts against a limit, so that nothing later runs deep.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, SelectorError>) -> Result<T, SelectorError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.error(self.at(), format!("more than {DEPTH_MAX} levels")));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn term(&mut self) -> Result<(), SelectorError> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(self.error(self.at(), format!("more than {TERMS_MAX} terms")));
        }
        Ok(())
    }

    fn or(&mut self) -> Result<Parsed, SelectorError> {
        let first = self.and()?;
        if *self.peek() != Kind::Keyword(Keyword::Or) {
            return Ok(first);
        }
        let at = first.at;
        let mut terms = vec![self.condition(first)?];
        while self.keyword(Keyword::Or) {
            let term = self.and()?;
            terms.push(self.condition(term)?);
        }
        Ok(Parsed { expression: Expression::Or(terms), is: Type::Condition, at })
    }

    fn and(&mut self) -> Result<Parsed, SelectorError> {
        let first = self.not()?;
        if *self.peek() != Kind::Keyword(Keyword::And) {
            return Ok(first);
        }
        let at = first.at;
        let mut terms = vec![self.condition(first)?];
        while self.keyword(Keyword::And) {
            let term = self.not()?;
            terms.push(self.condition(term)?);
        }
        Ok(Parsed { expression: Expression::And(terms), is: Type::Condition, at })
    }

    fn not(&mut self) -> Result<Parsed, SelectorError> {
        let at = self.at();
        if !self.keyword(Keyword::Not) {
            return self.comparison();
        }
        let term = self.deeper(Self::not)?;
        let expression = Expression::Not(Box::new(self.condition(term)?));
        Ok(Parsed { expression, is: Type::Condition, at })
    }

    fn comparison(&mut self) -> Result<Parsed, SelectorError> {
        let mut left = self.sum()?;
        loop {
            let at = self.at();
            let how = match self.peek() {
                Kind::Sign(Sign::Equal) => Comparison::Equal,
                Kind::Sign(Sign::NotEqual) => Comparison::NotEqual,
                Kind::Sign(Sign::Less) => Comparison::Less,
                Kind::Sign(Sign::LessOrEqual) => Comparison::LessOrEqual,
                Kind::Sign(Sign::Greater) => Comparison::Greater,
                Kind::Sign(Sign::GreaterOrEqual) => Comparison::GreaterOrEqual,
                Kind::Keyword(Keyword::Not | Keyword::Between | Keyword::In | Keyword::Like | Keyword::Is) => {
                    left = self.test(left)?;
                    continue;
                }
                _ => return Ok(left),
            };
            self.next += 1;
            self.term()?;
            let right = self.deeper(Self::sum)?;
            if !matches!(how, Comparison::Equal | Comparison::NotEqual) {
                for side in [&left, &right] {
                    if !matches!(side.is, Type::Number | Type::Any) {
                        let what = "only numbers are less or greater: strings and booleans have = and <>";
                        return Err(self.error(side.at, what));
                    }
                }
            }
            let at = left.at.min(at);
            let both = self.wanted.raw_ids(left.expression, right.expression);
            // A chain of comparisons is as deep as it is long.
            self.chain()?;
            left = Parsed { expression: Expression::Compare(how, Box::new(both)), is: Type::Condition, at };
        }
    }

    /// BETWEEN, IN, LIKE and IS NULL, with or without NOT.
    fn test(&mut self, left: Parsed) -> Result<Parsed, SelectorError> {
        let at = left.at;
        self.term()?;
        self.chain()?;
        let expression = if self.keyword(Keyword::Is) {
            let negated = self.keyword(Keyword::Not);
            if !self.keyword(Keyword::Null) {
                return Err(self.unexpected("NULL"));
            }
            let test = Expression::IsNull(self.field(&left, "IS NULL")?);
            if negated { Expression::Not(Box::new(test)) } else { test }
        } else {
            let negated = self.keyword(Keyword::Not);
            let test = if self.keyword(Keyword::Between) {
                self.between(left)?
            } else if self.keyword(Keyword::In) {
                self.one_of(&left)?
            } else if self.keyword(Keyword::Like) {
                self.like(&left)?
            } else {
                return Err(self.unexpected("BETWEEN, IN or LIKE"));
            };
            if negated { Expression::Not(Box::new(test)) } else { test }
        };
        Ok(Parsed { expression, is: Type::Condition, at })
    }

    fn between(&mut self, value: Parsed) -> Result<Expression, SelectorError> {
        let value = self.number(value)?;
        let low = self.deeper(Self::sum)?;
        let low = self.number(low)?;
        if !self.keyword(Keyword::And) {
            return Err(self.unexpected("AND, which belongs to BETWEEN"));
        }
        let high = self.deeper(Self::sum)?;
        let high = self.number(high)?;
        Ok(Expression::Between(Box::new((value, low, high))))
    }

    fn one_of(&mut self, left: &Parsed) -> Result<Expression, SelectorError> {
        let mut field = self.field(left, "IN")?;
        self.expect_sign(Sign::Open)?;
        let mut texts = Vec::new();
        loop {
            self.term()?;
            texts.push(self.string()?);
            if !self.sign(Sign::Comma) {
                break;
            }
        }
        self.expect_sign(Sign::Close)?;
        if texts.iter().all(|text| !text.starts_with("ID:")) {
            field = self.wanted.raw_id(field);
        }
        Ok(Expression::In(field, texts))
    }

    fn like(&mut self, left: &Parsed) -> Result<Expression, SelectorError> {
        let field = self.field(left, "LIKE")?;
        let pattern = self.string()?;
        let mut escape = None;
        let at = self.at();
        if self.keyword(Keyword::Escape) {
            let at = self.at();
            let text = self.string()?;
            let mut characters = text.chars();
            escape = characters.next().filter(|_| characters.next().is_none());
            if escape.is_none() {
                return Err(self.error(at, "ESCAPE takes one character"));
            }
        }
        let wrong = || self.error(at, "the escape character stands before something other than '%', '_' and itself");
        Ok(Expression::Like(field, Pattern::new(&pattern, escape).ok_or_else(wrong)?))
    }

    fn sum(&mut self) -> Result<Parsed, SelectorError> {
        let mut left = self.product()?;
        loop {
            let how = match self.peek() {
                Kind::Sign(Sign::Plus) => Operation::Plus,
                Kind::Sign(Sign::Minus) => Operation::Minus,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.product()?;
            left = self.arithmetic(how, left, right)?;
        }
    }

    fn product(&mut self) -> Result<Parsed, SelectorError> {
        let mut left = self.signed()?;
        loop {
            let how = match self.peek() {
                Kind::Sign(Sign::Times) => Operation::Times,
                Kind::Sign(Sign::Over) => Operation::Over,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.signed()?;
            left = self.arithmetic(how, left, right)?;
        }
    }

    fn arithmetic(&mut self, how: Operation, left: Parsed, right: Parsed) -> Result<Parsed, SelectorError> {
        let at = left.at;
        self.chain()?;
        let both = (self.number(left)?, self.number(right)?);
        Ok(Parsed { expression: Expression::Arithmetic(how, Box::new(both)), is: Type::Number, at })
    }

    /// A chain of operations is a tree as deep as the chain is long: it counts like parentheses, to the end of the
    /// selector.
    fn chain(&mut self) -> Result<(), SelectorError> {
        self.wanted.chained += 1;
        if self.wanted.chained > super::CHAIN_MAX {
            return Err(self.error(self.at(), format!("more than {} operations", super::CHAIN_MAX)));
        }
        Ok(())
    }

    fn signed(&mut self) -> Result<Parsed, SelectorError> {
        let at = self.at();
        if self.sign(Sign::Plus) {
            let term = self.deeper(Self::signed)?;
            return Ok(Parsed { expression: self.number(term)?, is: Type::Number, at });
        }
        if !self.sign(Sign::Minus) {
            return self.primary();
        }
        // The lowest whole number has no positive counterpart.
        if *self.peek() == Kind::Whole(1 << 63) {
            self.next += 1;
            return Ok(Parsed { expression: Expression::Long(i64::MIN), is: Type::Number, at });
        }
        let term = self.deeper(Self::signed)?;
        let expression = match self.number(term)? {
            Expression::Long(number) => Expression::Long(number.wrapping_neg()),
            Expression::Double(number) => Expression::Double(-number),
            term => Expression::Minus(Box::new(term)),
        };
        Ok(Parsed { expression, is: Type::Number, at })
    }

    fn primary(&mut self) -> Result<Parsed, SelectorError> {
        let at = self.at();
        self.term()?;
        let (expression, is) = match self.peek().clone() {
            Kind::Sign(Sign::Open) => {
                self.next += 1;
                let inner = self.deeper(Self::or)?;
                self.expect_sign(Sign::Close)?;
                return Ok(inner);
            }
            Kind::Identifier(name) => {
                let field = self.wanted.field(name).map_err(|what| self.error(at, what))?;
                (Expression::Field(field), Type::Any)
            }
            Kind::Keyword(Keyword::True) => (Expression::Boolean(true), Type::Condition),
            Kind::Keyword(Keyword::False) => (Expression::Boolean(false), Type::Condition),
            Kind::Text(text) => (Expression::Text(text), Type::Text),
            Kind::Approximate(number) => (Expression::Double(number), Type::Number),
            Kind::Whole(number) => {
                let number = i64::try_from(number).map_err(|_| self.error(at, "a number that is too large"))?;
                (Expression::Long(number), Type::Number)
            }
            _ => return Err(self.unexpected("a value")),
        };
        self.next += 1;
        Ok(Parsed { expression, is, at })
    }

    fn string(&mut self) -> Result<Box<str>, SelectorError> {
        let Kind::Text(text) = self.peek().clone() else { return Err(self.unexpected("a string")) };
        self.next += 1;
        Ok(text)
    }

    fn condition(&self, parsed: Parsed) -> Result<Expression, SelectorError> {
        match parsed.is {
            Type::Condition | Type::Any => Ok(parsed.expression),
            Type::Number | Type::Text => Err(self.error(parsed.at, "a value where a condition is wanted")),
        }
    }

    fn number(&self, parsed: Parsed) -> Result<Expression, SelectorError> {
        match parsed.is {
            Type::Number | Type::Any => Ok(parsed.expression),
            Type::Condition | Type::Text => Err(self.error(parsed.at, "only numbers can be computed with")),
        }
    }

    fn field(&self, parsed: &Parsed, before: &str) -> Result<usize, SelectorError> {
        match parsed.expression {
            Expression::Field(field) => Ok(field),
            _ => Err(self.error(parsed.at, format!("only the name of a property may stand before {before}"))),
        }
    }
}
