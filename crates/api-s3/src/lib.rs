//! The S3 face of Larder.
