export interface Range {
  fromMs: number
  toMs: number
  stepMs: number
}

/** The origin of the steps of `$dateTrunc`. */
const originMs = Date.UTC(2000, 0, 1)

/**
 * The steps of a chart that overlap `fromMs` to `toMs`, whole and aligned to the clock, over rows with a `time` that
 * are written every `everyMs`. `step` is the expression for the step of a row; `rowsSince` matches the rows of all
 * steps and those from `sinceMs` on before them, from which the first step counts.
 */
export function stepsOf({ fromMs, toMs, stepMs }: Range, everyMs: number) {
  const endMs = originMs + Math.ceil((toMs - originMs) / stepMs) * stepMs
  // A row covers the interval before it. Shifted back by half an interval, it falls into the step that it covers most.
  const backMs = everyMs / 2
  return {
    firstMs: originMs + Math.floor((fromMs - originMs) / stepMs) * stepMs,
    step: { $dateTrunc: { date: { $subtract: ['$time', backMs] }, unit: 'second', binSize: stepMs / 1000 } },
    rowsSince: (sinceMs: number) => ({ $gte: new Date(sinceMs + backMs), $lt: new Date(endMs + backMs) }),
  }
}
