//! The form of an entry outside the process.
