/** `script/test --long`: all proofs in full length. */
export const isLong = process.env['KEELSON_TEST_LONG'] === '1'
