/** Bytes of a sample, by the names of the contract (DataType). */
export const SAMPLE_BYTES: Record<string, number> = { U8: 1, I8: 1, U16: 2, I16: 2, F16: 2, F32: 4, U32: 4, I32: 4, C32: 4, F64: 8, C64: 8, U64: 8, I64: 8, C128: 16 };
