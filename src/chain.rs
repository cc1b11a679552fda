//! [`Chain`]: an error and what led to it, for a line in the log.

use std::{error::Error, fmt};

/// An error and what led to it, on one line; what says the same as the one before is left out.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        f.write_str(&told)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if text != told {
                write!(f, ": {text}")?;
            }
            told = text;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Self>>);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            let source: &(dyn Error + 'static) = self.1.as_deref()?;
            Some(source)
        }
    }

    #[test]
    fn each_cause_is_told_once_in_its_place() {
        let chain = ["lost", "broken pipe", "broken pipe", "lost"];
        let whole = chain
            .into_iter()
            .rev()
            .fold(None, |source, text| Some(Box::new(Link(text, source))));

        assert_eq!(
            Chain(&*whole.unwrap()).to_string(),
            "lost: broken pipe: lost"
        );
    }
}
