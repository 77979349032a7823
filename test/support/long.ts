/** `script/test --long`: proofs in their whole length. */
export const isLong = process.env['KEELSON_TEST_LONG'] === '1'
