import { EndWatch } from './end-watch.ts'
import { Operation, type OperationDocument } from './operations.ts'

/** The ends of operations. */
export const operationEnds = new EndWatch<OperationDocument>(Operation, 'operation')
