// What the platform checks by the store's own rules, before it asks the store.
export { type ErrorCode, StoreError } from '../../images/rag/errors.ts'
export { checkMetadata } from '../../images/rag/filter.ts'
export { checkSpec } from '../../images/rag/input.ts'
export { limits } from '../../images/rag/store.ts'
