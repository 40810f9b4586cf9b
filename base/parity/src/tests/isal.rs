//! The same bytes as ISA-L, an independent implementation (Debian: libisal-dev).
