import { describePgvector, openPgvector } from '../../support/rag/pgvector.ts'
import { describeRecall } from '../../support/rag/recall.ts'

describePgvector('pgvector', () => {
  // What the filter of one in a hundred leaves is all compared.
  describeRecall('the index of vectors', () => openPgvector({ exactUpTo: 500 }))
})
