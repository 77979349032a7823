/** How far off a clock may be after a resume that took so long: half of a round trip with its agent, and a second. */
export const clockErrorMs = (resumeTookMs: number): number => 1_000 + resumeTookMs / 2
