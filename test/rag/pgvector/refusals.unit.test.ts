import { describePgvector, openPgvector } from '../../support/rag/pgvector.ts'
import { describeBounds, describeRefusals } from '../../support/rag/refusals.ts'

describePgvector('pgvector', () => {
  describeRefusals('the engine', openPgvector)
  describeBounds('a full store', openPgvector)
})
